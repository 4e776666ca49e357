"""Operations that run out of time: their outcome is known, or said to be unknown."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import repeat
from typing import Any, cast

import pytest

from fdbqueue import Depth, Queue, Subscription, Worker, list_queues, survey
from fdbqueue.errors import (
    InvalidArgument,
    OperationTimedOut,
    OutcomeUnknown,
    TransactionTooLarge,
    TransactionTooSlow,
)
from fdbqueue.queue.admin.admin import Admin
from fdbqueue.queue.continuations.groups import Groups
from fdbqueue.queue.dead_letters import DeadLetters
from fdbqueue.queue.keys.message_keys import Key, Keys
from fdbqueue.queue.keys.shared_limits import Limits, SharedLimit
from fdbqueue.queue.line import Line
from fdbqueue.queue.schedules.schedules import Schedules
from fdbqueue.queue.streams.imports import Import
from fdbqueue.queue.streams.plans import Plans
from fdbqueue.queue.streams.sinks import Sink
from fdbqueue.queue.streams.streams import Streams
from fdbqueue.queue.subscription.subscriptions import Subscriptions
from fdbqueue.store.binding import fdb
from tests.flaky import (
    CONFLICT,
    TIMED_OUT_COMMITTED,
    TIMED_OUT_LOST,
    UNKNOWN_COMMITTED,
    UNKNOWN_LOST,
    CuttableDatabase,
    FlakyDatabase,
)
from tests.patience import DEADLINE
from tests.taking import take


def flaky(db: fdb.Database, *plan: str | None) -> fdb.Database:
    return cast("fdb.Database", FlakyDatabase(db, plan))


@pytest.mark.parametrize("before", [(), (UNKNOWN_LOST,)])
def test_what_committed_as_its_time_ran_out_is_done_once(
    db: fdb.Database, queue: Queue, before: tuple[str, ...]
) -> None:
    plan = (*before, TIMED_OUT_COMMITTED)
    (first,) = queue.enqueue_many(flaky(db, *plan), [b"a"])
    assert [message.id for message in queue.peek(db, 9)] == [first]
    found = take(flaky(db, *plan), queue)
    assert found.id == first
    queue.ack(flaky(db, *plan), found)
    assert queue.depth(db) == Depth(enqueued=1, done=1)


def test_an_unknown_outcome_that_runs_out_of_time_is_found_out(
    db: fdb.Database, queue: Queue
) -> None:
    queue.enqueue(flaky(db, UNKNOWN_COMMITTED, TIMED_OUT_LOST), b"a")
    assert queue.depth(db) == Depth(enqueued=1, ready=1, ready_bytes=1)


def test_what_did_not_commit_in_time_never_will(db: fdb.Database, queue: Queue) -> None:
    with pytest.raises(OperationTimedOut, match="nothing was written"):
        queue.enqueue(flaky(db, TIMED_OUT_LOST), b"a")
    assert queue.depth(db) == Depth()


def test_a_store_that_does_not_say_leaves_the_outcome_unknown(
    db: fdb.Database, queue: Queue
) -> None:
    store = CuttableDatabase(db)

    class Leaving:
        def create_transaction(self) -> fdb.Transaction:
            tr = store.create_transaction()
            commit = tr.commit

            def leave() -> Any:
                store.cut = True
                return commit()

            tr.commit = leave  # type: ignore[method-assign]
            return tr

    with pytest.raises(OutcomeUnknown):
        queue.enqueue(cast("fdb.Database", Leaving()), b"a")


def test_a_timeout_of_the_whole_database_is_a_deadline(
    db: fdb.Database, queue: Queue, store: str
) -> None:
    # Given a database whose transactions end after a moment
    limited = fdb.open(store)
    limited.options.set_transaction_timeout(1)
    try:
        # Then an operation ends with its result, or with nothing written
        done = 0
        for _ in range(20):
            try:
                queue.enqueue(limited, b"x")
                done += 1
            except OperationTimedOut:
                pass
    finally:
        limited.options.set_transaction_timeout(0)
    assert queue.depth(db).ready == done


def test_a_deadline_must_be_a_time(queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        queue.within(-1)


MOMENT = timedelta(seconds=0.1)


def blocked(db: fdb.Database) -> fdb.Database:
    """A database in which every commit meets a conflict."""
    return cast("fdb.Database", FlakyDatabase(db, repeat(CONFLICT)))


class Refusing:
    """Lends transactions of ``db`` whose commits all fail with one error."""

    def __init__(self, db: fdb.Database, code: int) -> None:
        self._db = db
        self._code = code
        self.commits = 0

    def create_transaction(self) -> fdb.Transaction:
        tr = self._db.create_transaction()

        def refuse() -> Any:
            self.commits += 1
            raise fdb.FDBError(self._code)

        tr.commit = refuse  # type: ignore[method-assign]
        return tr


def everything(db: fdb.Database, root: fdb.Subspace) -> list[tuple[bytes, bytes]]:
    tr = db.create_transaction()
    return [(kv.key, kv.value) for kv in tr.get_range(root.range().start, root.range().stop)]


def ends(operation: Callable[[], object]) -> type[BaseException] | None:
    """How an operation ends; it is given up after half a minute."""
    ended: list[type[BaseException] | None] = []

    def call() -> None:
        try:
            operation()
            ended.append(None)
        except BaseException as error:
            ended.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert ended, "it goes on for ever"
    return ended[0]


Call = Callable[[fdb.Database, fdb.Subspace, Queue], object]

CALLS: dict[str, Call] = {
    "create": lambda db, root, _: Queue.create(db, "new", root=root, timeout=MOMENT),
    "open": lambda db, root, _: Queue.open(db, "orders", root=root, timeout=MOMENT),
    "open anew": lambda db, root, _: Queue.open(db, "new", root=root, timeout=0.1),
    "list": lambda db, root, _: list_queues(db, root=root, timeout=MOMENT),
    "survey": lambda db, root, _: survey(db, ["orders"], root=root, timeout=MOMENT),
    "pickled": lambda db, _, queue: pickle.loads(pickle.dumps(queue)).enqueue(db, b"b"),
    "worker": lambda db, _, queue: Worker(db, 1).add(queue, lambda message: None),
}


@pytest.mark.parametrize("call", CALLS)
def test_whatever_can_block_ends_in_its_time_and_writes_nothing(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, call: str
) -> None:
    queue.enqueue(db, b"a")
    queue.subscriptions.open(db, "known")
    before = everything(db, space)
    limited = queue.within(MOMENT)
    assert ends(lambda: CALLS[call](blocked(db), space, limited)) is OperationTimedOut
    assert everything(db, space) == before


def test_what_lasts_too_long_again_and_again_is_given_up(
    db: fdb.Database, space: fdb.Subspace, queue: Queue
) -> None:
    before = everything(db, space)
    with pytest.raises(TransactionTooSlow, match="ask for less"):
        queue.enqueue(cast("fdb.Database", Refusing(db, 1007)), b"a")
    assert everything(db, space) == before


def test_what_is_too_large_is_not_tried_again(
    db: fdb.Database, space: fdb.Subspace, queue: Queue
) -> None:
    before = everything(db, space)
    store = Refusing(db, 2101)
    with pytest.raises(TransactionTooLarge):
        queue.enqueue(cast("fdb.Database", store), b"a")
    assert store.commits == 1
    assert everything(db, space) == before


@pytest.mark.parametrize("given", [-1, "soon", float("nan"), True])
def test_a_bound_of_a_call_must_be_a_time(
    db: fdb.Database, space: fdb.Subspace, given: Any
) -> None:
    for call in (
        lambda: Queue.create(db, "q", root=space, timeout=given),
        lambda: Queue.open(db, "q", root=space, timeout=given),
        lambda: list_queues(db, root=space, timeout=given),
        lambda: survey(db, ["q"], root=space, timeout=given),
    ):
        with pytest.raises(InvalidArgument, match="timeout"):
            call()
    assert list_queues(db, root=space) == []


CLASSES = (
    *(Queue, Subscription, Subscriptions, DeadLetters, Keys, Key, Limits, SharedLimit),
    *(Streams, Plans, Schedules, Groups, Import, Sink, Admin, Line),
)


def takers() -> Iterator[tuple[str, str]]:
    """The public methods that may be given a database."""
    for owner in CLASSES:
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            if name.startswith("_"):
                continue
            given = inspect.signature(method).parameters
            kinds = [str(given[each].annotation) for each in ("tr", "db") if each in given]
            if kinds and kinds != ["fdb.Transaction"]:
                yield owner.__name__, name


ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "Queue.enqueue": lambda _: (b"b",),
    "Queue.enqueue_many": lambda _: ([b"b"],),
    "Queue.receive_batch": lambda _: (3,),
    "Queue.receive_many": lambda _: (3,),
    "Line.collect": lambda known: (known.ticket,),
    "Queue.settle": lambda known: ([known.delivery], {}),
    "Line.withdraw": lambda known: (known.ticket,),
    "Admin.delivery": lambda known: (known.delivery.token,),
    "Queue.move": lambda known: (known.other,),
    "Queue.copy": lambda known: (known.other,),
    "Queue.get": lambda known: (known.delivery.id,),
    "Queue.result": lambda known: (known.done,),
    "Queue.cancel": lambda known: (known.delivery.id,),
    "Queue.edit": lambda known: (known.delivery.id,),
    "Subscription.receive_many": lambda _: (3,),
    "Subscription.seek": lambda _: ("first",),
    "Subscription.set_selector": lambda _: (None,),
    "Subscriptions.open": lambda _: ("known",),
    "Subscriptions.remove": lambda _: ("known",),
    "DeadLetters.show": lambda known: (known.delivery.id,),
    "Schedules.set": lambda _: ("new",),
    "Schedules.get": lambda _: ("known",),
    "Schedules.pause": lambda _: ("known",),
    "Schedules.resume": lambda _: ("known",),
    "Schedules.run": lambda _: ("known",),
    "Schedules.delete": lambda _: ("known",),
    "Groups.get": lambda _: ("known",),
    "Groups.forget": lambda _: ("known",),
    "Plans.show": lambda _: ("nobody",),
    "Plans.messages": lambda _: ("nobody",),
    "Plans.release": lambda _: ("nobody",),
    "Plans.forget": lambda _: ("nobody",),
    "Import.enqueue": lambda _: ([b"b"],),
    "Sink.stage": lambda _: (0,),
    "Sink.publish": lambda _: (0, []),
    "Sink.discard": lambda _: (0, []),
}


class Known:
    """A queue with a message, a lease and subscriptions, and how to call each method."""

    def __init__(self, db: fdb.Database, space: fdb.Subspace, queue: Queue) -> None:
        self.done = queue.enqueue(db, b"a", keep_result=60)
        queue.ack(db, queue.receive_many(db, 1))
        queue.enqueue_many(db, [b"a", b"a"])
        delivery = take(db, queue)
        self.delivery = delivery
        self.ticket = queue.line.request(db)
        self.other = Queue.create(db, "other", root=space)
        queue.schedules.set(db, "known", every=3600)
        queue.subscriptions.open(db, "known")
        queue.subscriptions.open(db, "shown", mode="browse")
        queue = queue.within(MOMENT)
        self._owners: dict[str, Any] = {
            "Queue": queue,
            "Subscription": Subscription(queue, "known"),
            "Subscriptions": queue.subscriptions,
            "Admin": queue.admin,
            "Line": queue.line,
            "DeadLetters": queue.dead,
            "Keys": queue.keys,
            "Key": queue.keys["known"],
            "Limits": queue.limits,
            "SharedLimit": queue.limits["api", "known"],
            "Streams": queue.streams,
            "Plans": queue.streams.plans,
            "Schedules": queue.schedules,
            "Groups": queue.groups,
            "Import": queue.streams.importer("file"),
            "Sink": queue.streams.sink("a"),
        }
        self._shown = Subscription(queue, "shown")

    def call(self, owner: str, method: str, tr: Any) -> None:
        """Call a method; of an iterator, take the first step."""
        called = getattr(self._owners[owner], method)
        if (owner, method) == ("Subscription", "browse"):
            called = self._shown.browse
        if (owner, method) in (("Key", "set"), ("SharedLimit", "set")):
            called = partial(called, concurrency=5)
        if (owner, method) == ("Queue", "edit"):
            called = partial(called, priority=5)
        if (owner, method) == ("Schedules", "set"):
            called = partial(called, every=60)
        if (owner, method) == ("Import", "enqueue"):
            called = partial(called, since=b"", until=b"1")
        name = f"{owner}.{method}"
        if name in ARGUMENTS:
            given = ARGUMENTS[name](self)
        elif method.startswith("reject"):
            given = (self.delivery, "unwanted")
        elif owner == "Queue" and method in ("ack", "extend", "release"):
            given = (self.delivery,)
        else:
            given = ()
        found = called(tr, *given)
        if isinstance(found, Iterator):
            next(found, None)


@pytest.fixture
def known(db: fdb.Database, space: fdb.Subspace, queue: Queue) -> Known:
    return Known(db, space, queue)


NEEDS_PLANS = {("Plans", name) for name in ("show", "messages", "release", "forget")}


@pytest.mark.sample(40)
@pytest.mark.parametrize(("owner", "method"), [*takers()])
def test_every_method_ends_in_the_time_of_its_handle_and_writes_nothing(
    db: fdb.Database,
    space: fdb.Subspace,
    known: Known,
    owner: str,
    method: str,
) -> None:
    # Given a store in which nothing commits; where the answer is an error, nothing is read either
    store = blocked(db)
    if (owner, method) in NEEDS_PLANS:
        store = cast("fdb.Database", Away(db))
    before = everything(db, space)
    assert ends(lambda: known.call(owner, method, store)) is OperationTimedOut
    assert everything(db, space) == before


class Away:
    """Lends transactions of ``db`` whose reads of the version fail for ever."""

    def __init__(self, db: fdb.Database) -> None:
        self._db = db

    def create_transaction(self) -> fdb.Transaction:
        tr = self._db.create_transaction()

        def fail(*_: object) -> Any:
            raise fdb.FDBError(1020)

        tr.get_read_version = fail  # type: ignore[method-assign]
        tr.get = fail  # type: ignore[method-assign,assignment]
        return tr
