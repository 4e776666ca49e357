"""See ``tests.contract.test_subscriptions``; run through asyncio."""

import pytest

from tests.contract.test_subscriptions import *  # noqa: F403

pytestmark = pytest.mark.slow
