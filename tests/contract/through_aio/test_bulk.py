"""See ``tests.contract.test_bulk``; run through asyncio."""

from tests.contract.test_bulk import *  # noqa: F403
