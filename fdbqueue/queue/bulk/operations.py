"""Moving, copying and removing messages by selector: methods of ``Queue``.

Each operation reads the messages in the order of delivery, up to 200 in a transaction, and returns
how far it has come. In each level it ends at the last message at the time when it begins with the
ready ones; it skips messages that are leased meanwhile. It takes a message exactly once, even if
the outcome of a commit is unknown. To continue after a crash, pass the ``place`` of the last
progress as ``resume``.

selector: which messages, or a function of the message, which sees the ``death`` of a dead letter
but not its payload, and must not raise; None for all. state: "ready", "delayed" or "dead".
progress: called after each transaction with how far the operation is; stops it by returning False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ...consumers import wakeups
from ...errors import InvalidArgument
from ...messages import bulk, purge
from ...messages.bulk import Operation
from ...schema.keys import Kind
from ...store.binding import fdb
from ...values.model import Progress
from ...values.states import State
from ..dead_letters import Wanted, Which, predicate
from ..handle import Handle, finished

STATES = {state.value: state for state in purge.REMOVED}
KINDS = {
    State.READY: (Kind.WAITING, Kind.READY),
    State.DELAYED: (Kind.DELAYED,),
    State.DEAD: (Kind.DEAD,),
}


def move(
    queue: Handle,
    db: fdb.Database,
    target: Handle | str,
    selector: Wanted = None,
    *,
    state: str = "ready",
    resume: bytes = b"",
    progress: Callable[[Progress], object] | None = None,
) -> Progress:
    """Move messages into another queue, each within one transaction.

    selector: which messages, or a function of the message, which sees the ``death`` of a dead
        letter but not its payload, and must not raise; None for all.
    target: the queue, or its name under the same root. Messages keep their payloads, headers and
        priorities, which are mapped to the target's levels; delayed ones stay delayed. They get
        new ids, no attempts and no unique key.

    Conflicts with other takers of the same messages. Raises ``InvalidSelector``,
    ``InvalidArgument``, and during the operation ``QueueNotFound`` and ``QueueFull``: messages
    moved until then stay moved, the others stay.
    """
    there = queue._other(target)
    return _bulk(queue, db, there, selector, state, resume, progress, keep=False)


def copy(
    queue: Handle,
    db: fdb.Database,
    target: Handle | str,
    selector: Wanted = None,
    *,
    state: str = "ready",
    resume: bytes = b"",
    progress: Callable[[Progress], object] | None = None,
) -> Progress:
    """Copy messages into another queue; they stay here as they are. As ``move``, but snapshot
    reads: no conflicts."""
    there = queue._other(target)
    return _bulk(queue, db, there, selector, state, resume, progress, keep=True)


def remove(
    queue: Handle,
    db: fdb.Database,
    selector: Which,
    *,
    state: str = "ready",
    resume: bytes = b"",
    progress: Callable[[Progress], object] | None = None,
) -> Progress:
    """Remove the messages that a selector matches. As ``move``; ``purge`` removes all."""
    return _bulk(queue, db, None, selector, state, resume, progress, keep=False)


def count(
    queue: Handle,
    db: fdb.Database,
    selector: Wanted = None,
    *,
    state: str = "ready",
    resume: bytes = b"",
    progress: Callable[[Progress], object] | None = None,
) -> Progress:
    """Count the messages that ``move`` or ``remove`` would take, and leave them where they are.

    As ``copy`` into nowhere: ``taken`` is the number. Snapshot reads: no conflicts.
    """
    return _bulk(queue, db, None, selector, state, resume, progress, keep=True)


def _bulk(
    queue: Handle,
    db: fdb.Database,
    target: Handle | None,
    selector: Wanted,
    state: str,
    resume: bytes,
    progress: Callable[[Progress], object] | None,
    *,
    keep: bool,
) -> Progress:
    if state not in STATES:
        raise InvalidArgument(
            argument="state", value=state, problem=f"must be one of {', '.join(STATES)}"
        )
    ended = (purge.REMOVED if target is None else bulk.MOVED)[STATES[state]]
    now_ms = queue._clock.now_ms(db)
    wanted = predicate(selector, lambda: now_ms)
    operation = Operation(STATES[state], wanted, None if keep else ended)
    return finished(_pages(queue, db, target, operation, resume), progress, Progress(0, 0, resume))


def _pages(
    queue: Handle, db: fdb.Database, target: Handle | None, operation: Operation, resume: bytes
) -> Iterator[Progress]:
    # Lines of ordering keys are ended before their heads, and copied after them: so a key
    # keeps its operation. The end of the ready messages is looked for when they come up.
    kinds = KINDS[operation.state] if operation.ended else KINDS[operation.state][::-1]
    taken = looked = 0
    for kind in kinds:
        for begin, end in queue._read(db, partial(_plan, queue, target, kind)):
            if resume and not begin <= resume <= end:
                continue
            following, resume = resume or begin, b""
            while following:
                page = partial(_page, queue, target, operation, following, end)
                count, rows, following = queue._run(db, page, wrote=lambda result: result[0] > 0)
                taken, looked = taken + count, looked + rows
                if rows:
                    yield Progress(taken, looked, following or end)


def _plan(
    queue: Handle, target: Handle | None, kind: Kind, tr: fdb.Transaction
) -> list[tuple[bytes, bytes]]:
    if target is not None:
        target._options(tr)
    return bulk.ranges(tr, queue._scope(tr), kind)


def _page(
    queue: Handle,
    target: Handle | None,
    operation: Operation,
    begin: bytes,
    end: bytes,
    tr: fdb.Transaction,
) -> tuple[int, int, bytes]:
    scope = queue._scope(tr)
    if target is None:
        return bulk.page(tr, scope, None, operation, begin, end)
    there = target._scope(tr)
    waiting = wakeups.reads(tr, there.keys, bulk.PAGE_ROWS)
    done = bulk.page(tr, scope, there, operation, begin, end)
    if done[0] and operation.state is not State.DELAYED:
        wakeups.wake(tr, there.keys, waiting)
    return done
