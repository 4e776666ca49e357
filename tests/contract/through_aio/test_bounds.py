"""See ``tests.contract.test_bounds``; run through asyncio."""

import pytest

from tests.contract.test_bounds import *  # noqa: F403

pytestmark = pytest.mark.slow
