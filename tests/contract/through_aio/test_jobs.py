"""See ``tests.contract.test_jobs``; run with workers of asyncio."""

import pytest

from tests.contract import test_jobs
from tests.contract.test_jobs import *  # noqa: F403

from .loops import LoopWorker


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_jobs, "Worker", LoopWorker)
