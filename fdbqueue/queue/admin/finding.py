"""Finding messages in whatever state: what the shell and the pages search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from ...errors import InvalidArgument
from ...messages import history, run
from ...messages.delivery.scan import BATCH_BYTES
from ...schema.keys import LOWEST
from ...store.binding import fdb
from ...values.model import Event, LeasedMessage, Message, MessageState
from ...values.states import State
from ..queue import Queue

MAX_LAG = 10_000
"""How many messages that a subscription has not seen are counted."""
PAGE = 500
"""How many messages one transaction reads."""
STEP, MAX_EVENTS = 1_000, 10_000
"""How many events of the queue one transaction reads, and all together."""
SKEW_SECONDS = 60.0
"""How far the clock of a producer may be ahead, at most."""
STATES = ("leased", "ready", "waiting", "retrying", "scheduled", "dead")
"""The states of messages that are there, in the order in which they are searched."""


def find(
    db: fdb.Database,
    queue: Queue,
    states: Sequence[str] = STATES,
    after: str | None = None,
) -> Iterator[MessageState]:
    """The messages of a queue in some states, state by state, page by page; each leased one takes
    a read of its own.

    after: the id of the last message of an earlier call; with several states one that is still
        there.

    Not at one instant: what moves meanwhile may be missing, or come twice. Snapshot reads: no
    conflicts. Raises ``QueueNotFound``, ``InvalidArgument``.
    """
    if after is not None and len(states) > 1:
        last = queue.get(db, after)
        if last is None or last.state.value not in states:
            problem = "it is no longer there: begin without it"
            raise InvalidArgument(argument="after", value=after, problem=problem)
        states = states[states.index(last.state.value) :]
    for state in states:
        read = _READERS.get(state, partial(_standing, state))
        yield from read(db, queue, after)
        after = None


def whole(db: fdb.Database, queue: Queue, message: Message) -> Message:
    """A message with its payload, which listings of leases leave out, if it is still there."""
    if message.payload:
        return message
    now = queue.get(db, message.id)
    return message if now is None else now.message


def events(
    db: fdb.Database, queue: Queue, message_id: str, since_ms: int | None = None
) -> tuple[list[Event], bool]:
    """What the history says of a message, the oldest first, and whether all of it was read.

    since_ms: when it was enqueued, by the wall clock; None reads from the beginning. At most 10,000
    events of the queue are read.
    """
    found: list[Event] = []
    after = b""
    if since_ms is not None:
        ago = (queue._clock.wall_ms() - since_ms) / 1000 + SKEW_SECONDS
        after = queue._read(db, lambda tr: history.stamp_ago(tr, queue._scope(tr), ago))
    for _ in range(MAX_EVENTS // STEP):
        some = queue.history(db, STEP, after)
        found += [event for event in some if event.id == message_id]
        if len(some) < STEP:
            return found, True
        after = some[-1].stamp
    return found, False


def leases(db: fdb.Database, queue: Queue, after: bytes | None = None) -> Iterator[LeasedMessage]:
    """The leases of a queue, or those behind a token, read page by page."""
    while found := queue.admin.leases(db, PAGE, after):
        yield from found
        after = found[-1].delivery.token
        if len(found) < PAGE:
            return


def _leased(db: fdb.Database, queue: Queue, after: str | None) -> Iterator[MessageState]:
    skipping = after is not None
    for each in leases(db, queue):
        if skipping:
            skipping = each.delivery.id != after
            continue
        now = queue.get(db, each.delivery.id)
        if now is not None and now.state is State.LEASED:
            yield now


def _dead(db: fdb.Database, queue: Queue, after: str | None) -> Iterator[MessageState]:
    while page := queue.dead.list(db, PAGE, after):
        for each in page:
            yield MessageState(each.message, State.DEAD, death=each.death, failures=each.failures)
        after = page[-1].id


def _standing(
    state: str, db: fdb.Database, queue: Queue, after: str | None
) -> Iterator[MessageState]:
    known = [after]
    while True:
        try:
            page = queue.messages(db, state, PAGE, known[-1])
        except InvalidArgument:
            if len(known) == 1:
                raise
            # The last one is gone, as listings are no snapshot: the one before it will do.
            known.pop()
            continue
        if not page:
            return
        yield from page
        known = [after, *(each.id for each in page)]


_READERS = {"leased": _leased, "dead": _dead}


def lag(db: fdb.Database, queue: Queue, subscription: str, most: int = MAX_LAG) -> int:
    """How many of the ready messages a subscription has still to see, up to ``most``, and of each
    level as far as 8 MB go. Snapshot reads: no conflicts. Raises ``QueueNotFound``."""
    total, keys = 0, queue._keys
    for level in range(queue.options(db).levels):

        def read(tr: fdb.Transaction, level: int = level, left: int = most - total) -> int:
            scope = queue._scope(tr)
            place = tr.snapshot.get(keys.cursor(subscription, level)).value or LOWEST
            wanted = [each for each in scope.subscriptions if each.name == subscription]
            selector = wanted[0].selector if wanted else None
            within, now_ms = keys.ready_from(level, place), scope.now_ms(tr)
            rows = tr.snapshot.get_range(within.start, within.stop, limit=left)
            count, room = 0, BATCH_BYTES
            for one in islice(run.ready(keys, rows, within.start), left):
                each = one.message
                properties = each.envelope.properties(each.position)
                count += selector is None or selector.matches(properties, now_ms)
                room -= len(one.value)
                if room < 0:
                    break
            return count

        if total < most:
            total += queue._read(db, read)
    return total
