"""See ``tests.contract.test_worker_health``; run with workers of asyncio."""

import pytest

from tests.contract import test_worker_health
from tests.contract.test_worker_health import *  # noqa: F403

from .loops import LoopWorker


@pytest.fixture(autouse=True)
def through_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_worker_health, "Worker", LoopWorker)
