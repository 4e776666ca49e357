"""See ``tests.contract.test_dead_letters``; run through asyncio."""

import pytest

from tests.contract.test_dead_letters import *  # noqa: F403

pytestmark = pytest.mark.slow
