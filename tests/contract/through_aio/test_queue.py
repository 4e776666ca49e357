"""See ``tests.contract.test_queue``; run through asyncio."""

from tests.contract.test_queue import *  # noqa: F403
