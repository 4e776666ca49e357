"""See ``tests.contract.test_bounds``; run through asyncio."""

from tests.contract.test_bounds import *  # noqa: F403
