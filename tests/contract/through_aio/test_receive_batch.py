"""See ``tests.contract.test_receive_batch``; run through asyncio."""

from tests.contract.test_receive_batch import *  # noqa: F403
