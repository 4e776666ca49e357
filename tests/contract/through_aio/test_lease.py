"""See ``tests.contract.test_lease``; run through asyncio."""

import pytest

from tests.contract.test_lease import *  # noqa: F403

pytestmark = pytest.mark.slow
