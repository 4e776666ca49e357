"""See ``tests.contract.test_delivery``; run through asyncio."""

from tests.contract.test_delivery import *  # noqa: F403
