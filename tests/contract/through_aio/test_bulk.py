"""See ``tests.contract.test_bulk``; run through asyncio."""

import pytest

from tests.contract.test_bulk import *  # noqa: F403

pytestmark = pytest.mark.slow
