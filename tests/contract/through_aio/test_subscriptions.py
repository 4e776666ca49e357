"""See ``tests.contract.test_subscriptions``; run through asyncio."""

from tests.contract.test_subscriptions import *  # noqa: F403
