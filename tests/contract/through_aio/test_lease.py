"""See ``tests.contract.test_lease``; run through asyncio."""

from tests.contract.test_lease import *  # noqa: F403
