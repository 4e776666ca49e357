"""Taking the messages that a selector matches, in strict order of priority: found and read with
conflicts first, then leased, removed, or only loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..messages import payloads, run, settle, time_to_live
from ..messages.delivery import queue_limits
from ..messages.delivery.take import Grant, take
from ..schema.consumers import Definition, Request
from ..schema.leases import new_claim
from ..schema.scope import Scope, StoredMessage
from ..store.binding import fdb
from ..values.model import Delivery, Message
from .cursors import MAX_SCANNED_BYTES, CursorScan

MIN_SKIPPED = 16
"""How many messages a cursor skips at once. A move conflicts with enqueues at these indexes and
with other consumers of the subscription; reading a few messages again costs less."""
MIN_SKIPPED_BYTES = 50_000


class ScanResult(Struct, frozen=True):
    """What a scan found, whether it saw the end of the queue, and how far it came.

    following: the first match that it left, if it looked for one. more: whether there is, or may
    be, one. barred: whether nothing may be taken now, whatever there is.
    """

    messages: list[StoredMessage]
    ended: bool
    reached: Mapping[int, bytes]
    following: StoredMessage | None = None
    more: bool = False
    barred: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing matches."""
        return self.ended and not self.messages

    @property
    def unfinished(self) -> bool:
        """Whether to continue in another transaction: nothing found, and the end not seen."""
        return not self.messages and not self.ended


def enough(messages: Sequence[StoredMessage], limit: int) -> bool:
    """Whether a transaction has as many messages as were asked for, or as it can carry."""
    chunks = sum(message.envelope.chunk_bytes for message in messages)
    return len(messages) == limit or chunks >= MAX_SCANNED_BYTES


class Wanted(Struct, frozen=True):
    """How many messages to look for, and how.

    strict: conflict with the arrival of a more urgent message, and of any if fewer than ``limit``
        match. Otherwise the order, and the end, are those at the start of the transaction.
    resume: where an earlier transaction of the call stopped, for a selector that reads the age, or
        one that belongs to no subscription: its definition has no name.
    admits: whether to take a match; the first that it refuses is left, with all that follow.
    apart: whether a message that is to be delivered alone is the only one; otherwise ``admits``
        sees to it.
    looks_on: whether to look for the match behind those taken, at snapshot isolation.
    leases: whether they are to be leased; then the queue's limit of messages in flight holds, too,
        and ``apart``: nobody dies of a message that is gone before it is handled.
    """

    limit: int
    strict: bool = True
    resume: Mapping[int, bytes] | None = None
    admits: Callable[[StoredMessage], bool] = lambda _: True
    apart: bool = True
    looks_on: bool = False
    leases: bool = True


def first(tr: fdb.Transaction, scope: Scope, definition: Definition, wanted: Wanted) -> ScanResult:
    """The first matching messages, each read with a conflict, and not yet removed. None of a paused
    queue, and no more than may be in flight.

    Moves the cursor behind messages that do not match, if there are enough of them. If the selector
    reads the age, the cursor stays, since a message may match later; each call then reads all
    messages again.

    Two round trips, and one more for each hundred skipped messages of a level, or as many bytes of
    them as a round trip brings. Conflicts with
    others that take one of the messages, add one before the last of its level, or move the cursor.
    """
    limit = 0 if scope.options.paused else wanted.limit
    if limit:
        limit = queue_limits.room(tr, scope, limit, leases=wanted.leases)
    if not limit and wanted.limit:
        return ScanResult([], True, {}, barred=True)
    moves = bool(definition.name) and not definition.timed
    # A cursor that is stored says itself where to go on; ``resume`` is for those without.
    messages = CursorScan(tr, scope, definition.name, limit, None if moves else wanted.resume)
    look, rest = _Look(tr, definition, wanted, limit, scope.now_ms(tr)), iter(messages)
    if limit:
        look.through(messages, rest)
    time_to_live.remove_undeliverable(tr, scope, look.expired)
    found = ScanResult(look.taken, messages.ended, messages.reached, look.following)
    if moves:
        look.move(messages, always=found.unfinished)
    # A subscription that closes itself claims that nothing is left: an arrival meanwhile makes that
    # wrong.
    if wanted.strict or (definition.auto_close and found.empty):
        messages.rely_on_ends()
    if look.full and wanted.looks_on:
        messages.glance()
        following = next((each for each in rest if _wanted(definition, each, look.now_ms)), None)
        return replace(found, following=following, more=following is not None or not messages.ended)
    return replace(found, more=found.following is not None)


class _Look:
    """A look through messages in their order: those that are taken, and those that have expired;
    the first that is left though it matches; and, by level, how many do not match, and their bytes.

    full: whether there is no room for more.
    """

    def __init__(
        self, tr: fdb.Transaction, definition: Definition, wanted: Wanted, limit: int, now_ms: int
    ) -> None:
        self._tr, self._definition, self._wanted, self._limit = tr, definition, wanted, limit
        self.now_ms = now_ms
        self.taken: list[StoredMessage] = []
        self.expired: list[StoredMessage] = []
        self.following: StoredMessage | None = None
        self.skipped: Counter[int] = Counter()
        self.weight: Counter[int] = Counter()
        self.full = limit == 0

    def through(self, scan: CursorScan, messages: Iterator[StoredMessage]) -> None:
        """Look until there is no room for more, or one is left."""
        for message in messages:
            envelope, level = message.envelope, message.position.level
            if settle.unfit(message, self.now_ms):
                # Each message by itself: a range up to it would conflict with whoever takes one
                # that does not match.
                run.watch(self._tr, [message])
                self.expired.append(message)
            elif not self._definition.matches(envelope.properties(message.position), self.now_ms):
                self.skipped[level] += 1
                self.weight[level] += len(envelope.payload)
            elif self._takes(message):
                if self.full:
                    return
            else:
                scan.leave(message)
                self.following = message
                return

    def _takes(self, message: StoredMessage) -> bool:
        wanted = self._wanted
        alone = wanted.apart and wanted.leases and bool(message.envelope.alone)
        if (alone and self.taken) or not wanted.admits(message):
            return False
        run.watch(self._tr, [message])
        self.taken.append(message)
        self.full = alone or enough(self.taken, self._limit)
        return True

    def move(self, scan: CursorScan, *, always: bool) -> None:
        """Move the cursors behind those that do not match, if these are many. always: a scan that
        came to its bound must move, or the next call would read the same messages, and get no
        further."""
        for level, count in self.skipped.items():
            many = count >= MIN_SKIPPED or self.weight[level] >= MIN_SKIPPED_BYTES
            if always or many:
                scan.move(level)


def _wanted(definition: Definition, message: StoredMessage, now_ms: int) -> bool:
    return settle.unfit(message, now_ms) is None and definition.matches(
        message.envelope.properties(message.position), now_ms
    )


def levels(tr: fdb.Transaction, scope: Scope, definition: Definition) -> Iterator[int]:
    """The levels of the first matching messages, in order, as far as one transaction reads.
    Snapshot reads; moves nothing."""
    now_ms, messages = scope.now_ms(tr), CursorScan(tr, scope, definition.name, 1)
    messages.glance()
    return (each.position.level for each in messages if _wanted(definition, each, now_ms))


def grant(
    tr: fdb.Transaction,
    scope: Scope,
    messages: Sequence[StoredMessage],
    *,
    request: Request,
) -> Sequence[Delivery]:
    """Lease them to whoever asked."""
    claim = new_claim(request.holder)
    (taken,) = take(tr, scope, [Grant(claim, request, run.pieces(scope.keys, messages))])
    return taken


def remove(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Remove them for good."""
    return [message.opened for message in settle.dequeue(tr, scope, messages)]


def load(tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]) -> list[Message]:
    """Leave them in place. One round trip if any payload is in chunks."""
    chunks = payloads.reads(tr, scope.keys, messages)
    return [message.opened for message in payloads.load(messages, chunks)]
