"""See ``tests.contract.test_delivery``; run through asyncio."""

import pytest

from tests.contract.test_delivery import *  # noqa: F403

pytestmark = pytest.mark.slow
