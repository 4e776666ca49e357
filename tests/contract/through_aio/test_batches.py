"""See ``tests.contract.test_batches``; run through asyncio."""

from tests.contract.test_batches import *  # noqa: F403
