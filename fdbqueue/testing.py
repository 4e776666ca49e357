"""A testing kit for programs that use queues. Needs pytest.

Put ``pytest_plugins = ["fdbqueue.testing"]`` into a ``conftest.py`` to get the fixtures
``fdbqueue_db``, ``fdbqueue_root``, ``fdbqueue_clock`` and ``fdbqueue_queue``. With the embedded
engine each test gets its own store. On a cluster each test gets its own subspace, which is cleared
afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import pytest

from .queue.queue import Queue
from .store import binding
from .store.binding import Engine, fdb
from .store.clocks import VERSIONS_PER_SECOND, Clock
from .values.model import Depth, HeaderValue, Message
from .values.options import Options
from .values.states import Outcome
from .worker.attempt import attempt
from .worker.handlers import Handler
from .worker.prefetch import Policy

__all__ = [
    "ManualClock",
    "assert_depth",
    "assert_enqueued",
    "drain",
    "fdbqueue_clock",
    "fdbqueue_db",
    "fdbqueue_queue",
    "fdbqueue_root",
]

_SEARCHED = 10_000


@dataclass
class ManualClock(Clock):
    """A clock that the test moves: after ``clock.seconds += 61``, a minute has passed.

    wall_only: seconds that only the wall clock is ahead, like that of a misconfigured machine.
        fdbqueue ignores a wall clock that is wrong by more than a minute.
    """

    seconds: float = 0.0
    wall_only: float = 0.0

    def monotonic(self) -> float:
        """Seconds by a clock that never steps."""
        return super().monotonic() + self.seconds

    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return super().wall_ms() + int((self.seconds + self.wall_only) * 1000)

    def versions_ahead(self) -> int:
        """How far ``version`` is ahead of the database."""
        return int(self.seconds * VERSIONS_PER_SECOND)


# -- fixtures ---------------------------------------------------------------------------------


@pytest.fixture
def fdbqueue_db(tmp_path: Path) -> Iterator[fdb.Database]:
    """A database: the test's own embedded store, closed afterwards, or the configured cluster."""
    if binding.DEFAULT.engine is Engine.EMBEDDED:
        db = binding.open(tmp_path / "test.fdbq")
        yield db
        binding.close(db)
    else:
        yield binding.open()


@pytest.fixture
def fdbqueue_root(fdbqueue_db: fdb.Database) -> Iterator[fdb.Subspace]:
    """An empty subspace to use as ``root``, cleared afterwards."""
    root = fdb.Subspace((f"test-{uuid.uuid4().hex}",))
    yield root
    fdbqueue_db.clear_range_startswith(root.key())


@pytest.fixture
def fdbqueue_clock() -> ManualClock:
    """The clock of ``fdbqueue_queue``, which the test moves."""
    return ManualClock()


@pytest.fixture
def fdbqueue_queue(
    fdbqueue_db: fdb.Database, fdbqueue_root: fdb.Subspace, fdbqueue_clock: ManualClock
) -> Callable[..., Queue]:
    """A function that creates queues: ``fdbqueue_queue("orders", levels=3)``."""

    def make(name: str = "test", **options: Unpack[Options]) -> Queue:
        return Queue.create(fdbqueue_db, name, root=fdbqueue_root, clock=fdbqueue_clock, **options)

    return make


# -- handling ---------------------------------------------------------------------------------


def drain(
    db: fdb.Database,
    queue: Queue,
    handler: Callable[..., Any],
    *,
    transactional: bool | None = None,
    batch: int | None = None,
    failures: bool = False,
) -> list[Message]:
    """Handle all ready messages in this thread, as a worker would; returns the handled ones.

    handler, transactional, batch: as in ``Worker.add``.
    failures: whether handlers may fail. If true, failed messages are retried by the queue's policy
        until none is ready. If false, the first exception of a handler is raised.

    Raises ``InvalidArgument``.
    """
    raised: list[BaseException] = []

    def careful(*arguments: Any) -> None:
        try:
            handler(*arguments)
        except BaseException as error:
            raised.append(error)
            raise

    call = Handler.of(handler, transactional=transactional, batch=batch, value=queue.value)
    call = replace(call, function=careful)
    policy = Policy(
        handler=call, lease=0, window=0, run=0, refresh_after=None, max_attempts=None, backoff=None
    )
    handled: list[Message] = []
    while found := queue.receive_many(db, batch or 1, consumer="drain"):
        ended = attempt(db, queue, policy, found)
        if ended is None and not failures:
            queue.release_many(db, found)
        if ended is None:
            alone = found if failures else []
            ended = [one for each in alone for one in attempt(db, queue, policy, [each]) or []]
        handled += [d.message for d, outcome in ended if outcome is Outcome.DONE]
        if raised and not failures:
            raise raised[0]
    return handled


# -- assertions -------------------------------------------------------------------------------


def assert_depth(db: fdb.Database, queue: Queue, **expected: int) -> None:
    """Assert the named counters of ``Depth``; all others are ignored."""
    __tracebackhide__ = True
    depth = queue.depth(db)
    found = {name: getattr(depth, name) for name in expected}
    assert found == expected, f"{queue} has {_counted(depth)}"


def assert_enqueued(
    db: fdb.Database,
    queue: Queue,
    payload: Any = None,
    *,
    priority: int | None = None,
    headers: dict[str, HeaderValue] | None = None,
    count: int | None = None,
) -> list[Message]:
    """Assert that matching messages are ready; returns them in the order of delivery.

    payload: the value after the queue's serializer. headers: those that must be equal.
    count: the number of matching messages; None: at least one.
    """
    __tracebackhide__ = True
    ready = queue.peek(db, _SEARCHED)
    found = [
        message
        for message in ready
        if (payload is None or queue.value(message) == payload)
        and (priority is None or message.priority == priority)
        and (headers or {}).items() <= message.headers.items()
    ]
    described = f"payload={payload!r}, priority={priority}, headers={headers}"
    shown = "\n".join(
        f"  {message.payload[:80]!r} priority={message.priority} {dict(message.headers)}"
        for message in ready[:20]
    )
    right = bool(found) if count is None else len(found) == count
    assert right, f"{len(found)} messages with {described}; ready are {len(ready)}:\n{shown}"
    return found


def _counted(depth: Depth) -> str:
    counts = ((name, getattr(depth, name)) for name in Depth.__match_args__)
    return ", ".join(f"{name}={count}" for name, count in counts if count) or "nothing"
