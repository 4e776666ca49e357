"""See ``tests.contract.test_dedup``; run through asyncio."""

from tests.contract.test_dedup import *  # noqa: F403
