"""See ``tests.contract.test_line``; run through asyncio."""

from tests.contract.test_line import *  # noqa: F403
