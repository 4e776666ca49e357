"""See ``tests.contract.test_line``; run through asyncio."""

import pytest

from tests.contract.test_line import *  # noqa: F403

pytestmark = pytest.mark.slow
