"""See ``tests.contract.test_worker``; run with workers of asyncio."""

import pytest

from tests.contract import test_worker
from tests.contract.test_worker import *  # noqa: F403

from .loops import LoopWorker


@pytest.fixture(autouse=True)
def through_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_worker, "Worker", LoopWorker)
