"""See ``tests.contract.test_dead_letters``; run through asyncio."""

from tests.contract.test_dead_letters import *  # noqa: F403
