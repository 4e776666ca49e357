"""Settling: whatever ends a lease, or takes a message out of the place where it waits.

``decide`` and ``unfit`` say how a message leaves: pure functions of plain values. ``carry_out``
does it: ``values.states.ENDINGS`` has the transition for the state that the message was in.

To settle deliveries is to end the leases of all of them, or to raise ``LeaseLost`` that names those
that are gone, before anything is written. One round trip, two for extended leases. Conflicts only
with another settlement of the same leases, and with their expiry, never with an extension: exactly
one succeeds. While leases share a row, also with a settlement of others of that row; the first of
them gives each its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from ..schema.catalogue import CachedScope
from ..schema.envelope import UNREADABLE
from ..schema.keys import QueueKeys
from ..schema.leases import unpack_until
from ..schema.records import BacklogPlace
from ..schema.scope import Scope, StoredMessage
from ..store import world
from ..store.binding import fdb
from ..values import backoff
from ..values.model import Delivery, Position
from ..values.options import QueueOptions
from ..values.states import ACK, DEQUEUE, ENDINGS, End, State
from . import dead_letters, lookup, payloads, run, transitions
from .delivery import failures, queue_limits
from .delivery.failures import Failed
from .enqueue import delayed, last_values
from .lookup import FoundMessage
from .run import Held, One, WholeRow
from .slots import backlog

FREE_RELEASES = 3
"""How often a message may be released without an error before releases cause a delay."""
FIRST_DELAY = 0.1
MAX_DELAY = 10.0
"""The delays of further releases, in seconds."""
FIRST_REST = 10.0
MAX_REST = 600.0
"""The delays after deaths, in seconds from the end of the lease."""
EXPIRED = "its time to live was over"
_RETURNS = (End.RETURN, End.LAPSE)


class Return(Struct, frozen=True):
    """A verdict: the message goes back to its place, after ``delay`` seconds; None for the backoff
    of the message or the queue, and without an error for ``release_delay``.

    With an error the attempt failed, and may have been the last. Without one it does not count.
    ``seconds``, ``traceback``: how long it took, and where it failed, if that is known.
    """

    delay: float | None = None
    error: str | None = None
    seconds: float | None = None
    traceback: str = ""


class Refuse(Struct, frozen=True):
    """A verdict: the message becomes a dead letter, or is dropped. The attempt failed; ``seconds``
    and ``traceback`` as of ``Return``."""

    reason: str
    drop: bool = False
    seconds: float | None = None
    traceback: str = ""


class Lapse(Struct, frozen=True):
    """What became of a lease that nobody settled: no failed attempt. begun: whether handling of the
    message, and of no other, had begun; then the consumer seems to have died of it. ended_ms: when
    the lease ended, by the wall clock."""

    begun: bool
    ended_ms: int


Verdict = Return | Refuse
NO_VERDICTS: Mapping[str, Verdict] = MappingProxyType({})


class Leaving(Struct, frozen=True):
    """A message as it leaves, and how; ``due_ms`` for DELAY and REST, ``reason`` for REJECT;
    ``failed`` where an attempt has."""

    message: StoredMessage
    end: End
    due_ms: int = 0
    reason: str = ""
    failed: Failed | None = None


def release_delay(released: int) -> float:
    """How long to delay a message released ``released`` times before without an error.

    Otherwise a consumer that keeps releasing the first message would receive it again and again.
    """
    if released < FREE_RELEASES:
        return 0.0
    return min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(released - FREE_RELEASES, 10))


def death_delay(deaths: int) -> float:
    """How long to delay a message at which so many consumers have died, and so perhaps of it."""
    return min(MAX_REST, FIRST_REST * 2.0 ** min(deaths - 1, 10))


def decide(
    options: QueueOptions, message: StoredMessage, verdict: Verdict | Lapse | None, now_ms: int
) -> Leaving:
    """How a message leaves its consumer; without a verdict it is done."""
    if verdict is None:
        return Leaving(message, End.DONE)
    envelope = message.envelope
    # Before any verdict: a cancelled message must not come back by failing or by its consumer's
    # death.
    if envelope.cancelled:
        return Leaving(message, End.CANCEL)
    over, reason, failed, back, later = False, "", None, End.RETURN, End.DELAY
    match verdict:
        case Refuse(reason, drop, seconds, traceback):
            message = replace(message, envelope=envelope.failed(reason))
            # A dropped message leaves nothing that could show its failures.
            failed = None if drop else Failed(reason, seconds, traceback)
            return Leaving(message, End.DROP if drop else End.REJECT, 0, reason, failed)
        case Lapse(begun, ended_ms):
            envelope, back, later = envelope.after_expiry(begun=begun), End.LAPSE, End.REST
            # The rest counts from the end of the lease, not from now: a queue without consumers for
            # an hour owes it no more delay. A clock set back counts as no rest.
            rested = max(0.0, (now_ms - ended_ms) / 1000)
            delay = max(0.0, death_delay(envelope.deaths) - rested) if begun else 0.0
            over = begun and _reached(envelope.deaths, options.max_deaths)
            reason = envelope.last_error or ""
            failed = Failed(reason) if begun else None
        case Return(delay, None):
            if delay is None:
                delay = release_delay(envelope.released)
                # Only releases without a delay of the caller's own count: whoever gives one cannot
                # take the message again at once.
                envelope = replace(envelope, released=envelope.released + 1)
        case Return(delay, str(error), seconds, traceback):
            envelope, failed = envelope.failed(error), Failed(error, seconds, traceback)
            over = _reached(envelope.attempts, envelope.max_attempts or options.max_attempts)
            reason = error or "it failed at the last attempt"
            if delay is None:
                policy = envelope.backoff or options.backoff
                delay = backoff.delay_seconds(policy, envelope.attempts, world.random.uniform)
    message = replace(message, envelope=envelope)
    # Before the time to live: a message that failed for the last time is a dead letter with its
    # reason, even if its time is over too.
    if over:
        return Leaving(message, End.REJECT, 0, reason, failed)
    if envelope.expired(now_ms):
        return Leaving(message, End.EXPIRE, failed=failed)
    if delay:
        return Leaving(message, later, now_ms + int(delay * 1000), failed=failed)
    return Leaving(message, back, failed=failed)


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def unfit(message: StoredMessage, now_ms: int) -> Leaving | None:
    """How a message leaves that waits and may not be delivered any more; None if it may."""
    envelope = message.envelope
    # Nothing in it can be trusted, so not its time to live either.
    if not envelope.readable:
        return Leaving(message, End.REJECT, reason=envelope.last_error or UNREADABLE)
    return Leaving(message, End.EXPIRE) if envelope.expired(now_ms) else None


def carry_out(tr: fdb.Transaction, scope: Scope, source: State, leaving: Iterable[Leaving]) -> int:
    """Send messages, already removed from where they were, where they go; returns how many became
    ready, with others that waited for their slots.

    source: the state they were in. One that returns ends instead if a newer message of its last
    value has replaced it. Writes blindly, except dead letters for another queue, and where the
    queue keeps last values; and see ``transitions.record``.
    """
    by_end: dict[End, list[Leaving]] = {}
    leaving = list(leaving)
    # Before the transitions: the end of a message removes its failures, including these.
    failures.write(tr, scope, [(each.message, each.failed) for each in leaving if each.failed])
    for each in leaving:
        # Decided here, once for all that expires: ready, delayed or returning from a lease.
        dies = each.end is End.EXPIRE and scope.options.expired == "dead"
        by_end.setdefault(End.REJECT if dies else each.end, []).append(each)
    ready = 0
    # Who waits for a key again is in its line before others give their slots up.
    for end in sorted(by_end, key=lambda end: end not in _RETURNS):
        some = by_end[end]
        messages = [each.message for each in some]
        if end is End.REJECT:
            reasons = [each.reason if each.end is end else EXPIRED for each in some]
            died = list(zip(messages, reasons, strict=True))
            ready += dead_letters.add(tr, scope, source, died)
            continue
        if end in _RETURNS:
            messages = _put_back(tr, scope, source, messages)
            ready += sum(each.turn is None for each in messages)
        elif end in (End.DELAY, End.REST):
            for each in some:
                delayed.put_off(tr, scope, each.due_ms, each.message)
        ready += transitions.record(tr, scope, ENDINGS[source, end], messages)
    return ready


def _put_back(
    tr: fdb.Transaction, scope: Scope, source: State, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Put messages back to their places, but those that a newer one has replaced; returns them. One
    that was never ready waits for its key again, before all others."""
    replaced = ENDINGS[source, End.REPLACE]
    messages = last_values.remaining(tr, scope, replaced, messages)
    ready = [each for each in messages if each.position.index]
    run.put_back(tr, scope, ready)
    for message in ready if source is State.SCHEDULED else ():
        # Its id led to the delayed row, which is gone.
        lookup.point(tr, scope.keys, message, message.position)
    waits = [each for each in messages if not each.position.index]
    return ready + backlog.put_first(tr, scope, waits) if waits else ready


def end(tr: fdb.Transaction, scope: Scope, found: Iterable[FoundMessage], how: End) -> int:
    """Let messages leave the queue that wait or are dead, read with a conflict; returns how many
    others became ready."""
    ready: list[StoredMessage] = []
    of_state: dict[State, list[Leaving]] = {}
    for one in found:
        of_state.setdefault(one.source, []).append(Leaving(one.message, how))
        match one.place:
            case Position():
                ready.append(one.message)
            case BacklogPlace():
                backlog.take_out(tr, scope, one.place)
            case _:
                del tr[lookup.key(scope.keys, one.place)]
    run.remove(tr, scope.keys, run.pieces(scope.keys, ready))
    return sum(carry_out(tr, scope, state, some) for state, some in of_state.items())


def dequeue(
    tr: fdb.Transaction, scope: Scope, messages: Sequence[StoredMessage]
) -> list[StoredMessage]:
    """Take ready messages that are done as they are taken, read with a conflict; returns them with
    their payloads. One round trip if any payload is in chunks."""
    # Read before the messages end, which removes their chunks.
    # Snapshot reads suffice: chunks never change, and the conflict on the message covers their
    # removal.
    loaded = payloads.load(messages, payloads.reads(tr, scope.keys, messages))
    if loaded:
        queue_limits.count(tr, scope, len(loaded), leases=False)
    run.remove(tr, scope.keys, run.pieces(scope.keys, loaded), cut=True)
    transitions.record(tr, scope, DEQUEUE, loaded)
    return loaded


class Ending:
    """Leases to end: their reads, issued and not awaited.

    deliveries: those that are not of a whole row. last: the last read of a single key, if there is
    one.
    """

    def __init__(self, tr: fdb.Transaction, keys: QueueKeys, held: Sequence[Held]) -> None:
        self._tr = tr
        self._keys = keys
        self._rows: list[tuple[WholeRow, fdb.Value]] = []
        self.deliveries: list[Delivery] = []
        for one in held:
            if type(one) is WholeRow:
                if not one.row.key.startswith(keys.lease.prefix):
                    self.deliveries += one.deliveries  # Of another queue: this one has no lease.
                    continue
                # With a conflict: of two that settle or cut this row, one fails. Its unchanged
                # value proves all its leases, so that no lease is opened.
                self._rows.append((one, tr.get(one.row.key)))
            else:
                self.deliveries.append(one)
        self._leases = run.Leases(tr, keys, [each.token for each in self.deliveries])
        self.last = self._rows[-1][1] if self._rows else self._leases.last

    def end(self) -> tuple[list[One], list[WholeRow]]:
        """End the leases; returns them, but those of rows that nobody has changed as rows.

        A second round trip if a row has changed: to tell which of its leases are gone; and one if
        a lease was extended.
        """
        tr, keys, deliveries = self._tr, self._keys, self.deliveries
        rows: list[WholeRow] = []
        changed: list[Delivery] = []
        for row, read in self._rows:
            # Compared as bytes: it was written by this consumer, and any change of a lease rewrites
            # or clears the row.
            if read.value == row.row.value:
                rows.append(row)
            else:
                changed += row.deliveries
        if changed:
            deliveries = [*deliveries, *changed]
            self._leases = run.Leases(tr, keys, [each.token for each in deliveries])
        found = self._leases.held(deliveries)
        # Of each claim, its end, how many leases it had, and how many stay.
        claims: dict[bytes, tuple[int, int, int]] = {}
        extended: dict[bytes, fdb.Value] = {}
        for one, delivery in zip(found, deliveries, strict=True):
            lease = one.row.lease
            name, count = lease.claim, lease.together
            version, together, left = claims.get(name) or (lease.expiry_version, count, count)
            claims[name] = version, together, left - 1
            if lease.expiry_ms != delivery.expires_at_ms and name not in extended:
                # At snapshot isolation, so that an extension beside a settlement aborts neither of
                # them.
                extended[name] = tr.snapshot.get(keys.until(name))
        for row in rows:
            claim = row.row.claim
            name, count = claim.name, claim.together
            version, together, left = claims.get(name) or (claim.version, count, count)
            claims[name] = version, together, left - (row.end - row.begin)
            if claim.wall_ms != row.expires_at_ms and name not in extended:
                extended[name] = tr.snapshot.get(keys.until(name))
        later = {}
        for name, read in extended.items():
            later[name] = unpack_until(read.value)
        self._leases.remove(found)
        for row in rows:
            tr.clear(row.row.key)
        for name, (version, together, left) in claims.items():
            # The claim's end is shared: while one of its leases is left, EXPIRY must keep it, or
            # that lease would never lapse.
            if left:
                continue
            # Also where there is none: an extension may have committed since.
            tr.clear(keys.until(name))
            ends = later.get(name)
            # Where all leases of the claim were extended, the extension has removed its first
            # EXPIRY.
            if ends is None or len(ends) < together:
                tr.clear(keys.expiry(version, name))
            for each in {end.version for end in ends.values()} if ends else ():
                tr.clear(keys.expiry(each, name))
        return found, rows


def ack(tr: fdb.Transaction, entry: CachedScope, held: Sequence[Held]) -> None:
    """Acknowledge deliveries."""
    ending = Ending(tr, entry.keys, held)
    settle(tr, entry.scope(tr, ending.last), ending)


def settle(
    tr: fdb.Transaction,
    scope: Scope,
    ending: Ending,
    verdicts: Mapping[str, Verdict] = NO_VERDICTS,
    others: Verdict | None = None,
) -> int:
    """Settle deliveries, given the reads of their leases, each by its verdict; returns how many
    messages became ready: these, or those that waited for their slots.

    verdicts: by the ids of the messages. others: the verdict of all others; None if they are done.
    Messages that are done and have no side records are counted, and not opened.
    """
    counts = others is None and not verdicts and scope.options.history_seconds is None
    done: dict[int, int] = {}
    messages: list[StoredMessage] = []
    found, rows = ending.end()
    for one in found:
        # No feature has a step for it: counting by level is all, so its envelope stays packed.
        if counts and one.row.lease.plain:
            level = one.row.position.level
            done[level] = done.get(level, 0) + 1
        else:
            messages.append(one.message)
    for row in rows:
        if counts and row.row.plain:
            level = row.row.piece.position.level
            done[level] = done.get(level, 0) + row.end - row.begin
        else:
            messages += row.messages
    transitions.record(tr, scope, ACK, (), done)
    if not messages:
        return 0
    now_ms, options = scope.now_ms(tr), scope.options
    leaving = [decide(options, each, verdicts.get(each.id, others), now_ms) for each in messages]
    # After the leases are gone, in the same transaction: at no version is a message both leased and
    # elsewhere.
    return carry_out(tr, scope, State.LEASED, leaving)
