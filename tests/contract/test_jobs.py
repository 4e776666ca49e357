"""Jobs: functions that producers call by messages."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from fdbqueue import Message, Queue, Run, Worker
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from tests.patience import eventually

Database = fdb.Database


@pytest.fixture
def teas(db: Database, space: fdb.Subspace) -> Queue[Any]:
    return Queue.open(db, "teas", root=space, max_attempts=1)


def test_jobs_share_a_queue_and_are_functions(db: Database, teas: Queue[Any]) -> None:
    seen: list[Any] = []

    @teas.job
    def brew(tea: str) -> str:
        seen.append(tea)
        return tea

    @teas.job(name="wash")
    def clean(message: Message) -> None:
        seen.append((message.headers, message.priority))

    brew.enqueue(db, "assam", priority=9)
    clean.enqueue(db, cast("Any", None), headers={"hot": True})
    with Worker(db, 1).add(teas):
        eventually(lambda: teas.depth(db).done == 2)
    assert seen == ["assam", ({"job": "wash", "hot": True}, 4)]
    assert brew("oolong") == "oolong"
    assert brew.name.startswith("tests.contract.test_jobs.")


def test_a_job_may_write_in_the_transaction_that_ends_its_message(
    db: Database, teas: Queue[Any], space: fdb.Subspace
) -> None:
    @teas.job
    def note(tr: fdb.Transaction, tea: str) -> None:
        tr[space.pack((tea,))] = b"noted"

    note.enqueue(db.create_transaction(), "never committed")
    note.enqueue(db, "assam")
    with Worker(db, 1).add(teas):
        eventually(lambda: teas.depth(db).done == 1)
    assert db[space.pack(("assam",))] == b"noted"


@pytest.mark.parametrize(
    ("headers", "told"),
    [({"job": "bake"}, r"of job 'bake'.*import the module"), (None, r"of no job.*enqueue it by a")],
)
def test_a_message_of_an_unknown_job_has_failed(
    db: Database, teas: Queue[Any], headers: Any, told: str
) -> None:
    @teas.job(name="brew")
    def brew(tea: str) -> None: ...

    teas.enqueue(db, "assam", headers=headers)
    with Worker(db, 1).add(teas):
        eventually(lambda: teas.depth(db).dead == 1)
    reason = teas.dead.list(db)[0].death.reason
    assert "UnknownJob" in reason
    assert "has here the jobs brew" in reason
    assert re.search(told, reason)


def test_what_is_wrong_with_a_job_is_said(db: Database, teas: Queue[Any]) -> None:
    with pytest.raises(InvalidArgument, match="has no job"):
        Worker(db).add(teas)

    @teas.job(name="brew")
    def brew(tea: str) -> None: ...

    with pytest.raises(InvalidArgument, match="a job has it"):
        teas.job(name="brew")(brew.function)
    with pytest.raises(InvalidArgument, match="the job sets it"):
        brew.enqueue(db, "assam", headers={"job": "bake"})

    with pytest.raises(InvalidArgument, match="one message at a time"):
        Worker(db).add(teas, run=Run(batch=9))

    @teas.job
    def note(tr: fdb.Transaction, tea: str) -> None: ...

    with pytest.raises(InvalidArgument, match="take two queues"):
        Worker(db).add(teas)


def test_a_job_has_schedules(db: Database, teas: Queue[Any]) -> None:
    seen: list[str] = []

    @teas.job
    def report(what: str) -> None:
        seen.append(what)

    found = report.schedule(db, "nightly", "sales", cron="0 3 * * *", headers={"hot": True})
    assert (found.headers, found.cron) == ({"job": report.name, "hot": True}, "0 3 * * *")
    teas.schedules.run(db, "nightly")
    with Worker(db, 1).add(teas):
        eventually(lambda: teas.depth(db).done == 1)
    assert seen == ["sales"]
    with pytest.raises(InvalidArgument, match="the job sets it"):
        report.schedule(db, "nightly", "sales", every=60, headers={"job": "other"})


def test_a_schedule_of_a_queue_with_jobs_is_of_one(db: Database, teas: Queue[Any]) -> None:
    other = Queue[Any](teas.name, teas._root)

    @teas.job(name="brew")
    def brew(tea: str) -> None: ...

    with pytest.raises(InvalidArgument, match=r"of no job, .* call schedule of one of them, brew"):
        teas.schedules.set(db, "nightly", "sales", every=60)
    assert teas.schedules.get(db, "nightly") is None
    # The job may be of a module that is not imported here, and another handle may have no jobs.
    teas.schedules.set(db, "nightly", "sales", every=60, headers={"job": "elsewhere"})
    other.schedules.set(db, "nightly", "sales", every=60)


def test_a_schedule_without_a_value_says_that_it_is_missing(
    db: Database, space: fdb.Subspace
) -> None:
    numbers = Queue.open(db, "numbers", root=space, serializer=int)
    with pytest.raises(InvalidArgument, match="takes no empty message: give a value"):
        numbers.schedules.set(db, "nightly", every=60)
    plain = Queue.open(db, "plain", root=space)
    assert plain.schedules.set(db, "nightly", every=60).payload == b""
