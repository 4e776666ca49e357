"""See ``tests.contract.test_worker_acknowledgements``; run with workers of asyncio."""

import pytest

from fdbqueue import Queue
from fdbqueue.store.binding import fdb
from tests.contract import test_worker_acknowledgements as blocking
from tests.contract.test_worker_acknowledgements import *  # noqa: F403
from tests.flaky import FAULTS

from .loops import LoopWorker

TEST = "whatever_becomes_of_a_shared_commit_each_message_is_handled_and_counted_once"
shared_commit = globals().pop(f"test_{TEST}")


@pytest.fixture(autouse=True)
def through_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "Worker", LoopWorker)


# Without the faults of operations that time out. Handlers here do not end in step, so the plan of
# faults may hit the settlement of a single message, which then is handled again after its lease.
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_becomes_of_a_shared_commit(db: fdb.Database, queue: Queue, fault: str) -> None:
    shared_commit(db, queue, fault)
