"""The registry: the consumers of a queue, and who of them waits."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..schema.consumers import (
    ConsumerRecord,
    ConsumerRef,
    Holder,
    Listed,
    Session,
    Work,
)
from ..schema.keys import QueueKeys
from ..schema.leases import CLAIM_BYTES, holder_of
from ..schema.scope import Scope
from ..store import world
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND, Moment
from . import line, sessions, wakeups
from .consumer_states import ConsumerState

MAX_SUPERIORS = 100
"""Consumers of higher priority that one transaction reads."""
MAX_WAITERS = 20
"""Consumers without a session that one transaction reads."""
_HANDLE_BYTES = CLAIM_BYTES // 2


class Consumer(Struct, frozen=True):
    """A consumer as a listing shows it.

    ``state`` is None for a consumer on no list. ``name`` is empty for one that only waits in
    ``receive`` or ``browse``. ``subscription`` is empty for one that takes any message; ``holder``
    tells whether it is the one that an exclusive subscription serves. Times are in milliseconds
    since the epoch; ``seen_at_ms`` is the last sign of life of the consumer's process, and ``work``
    what that told of its workers in the queue.
    """

    id: bytes
    name: str
    priority: int
    state: ConsumerState | None
    host: str
    process: int
    started_at_ms: int
    seen_at_ms: int
    guard: bool
    session: bytes = b""
    subscription: str = ""
    holder: bool = False
    work: tuple[Work, ...] = ()

    @property
    def says(self) -> str:
        """Its state in words, and why it takes nothing where that is known; empty on no list."""
        if self.state is None:
            return ""
        text = self.state.name.lower().replace("_", " ")
        full = [each.places for each in self.work if each.taken >= each.places]
        if self.state is not ConsumerState.NOT_INTERESTED or not full:
            return text
        return f"{text}: all {full[0]} places are taken"


@transactional
def register(
    tr: fdb.Transaction,
    scope: Scope,
    session: bytes,
    name: str,
    priority: int = 0,
    *,
    acquiring: bool = True,
    subscription: str = "",
    handle: bytes = b"",
) -> ConsumerRef:
    """Register a consumer of a process. Raises ``SessionExpired``.

    An acquiring consumer is not interested at first; any other never takes a message.
    subscription: whose consumer it is, if any, with the ``handle`` that it uses.
    One round trip; conflicts with a heartbeat of the session, and with its end.
    """
    # With a conflict on the session: a consumer must not come into one that is being evicted.
    sessions.join(tr, scope.root, session, scope.name)
    consumer = ConsumerRef(new_id(handle), priority, session, subscription)
    record = ConsumerRecord(name, priority, scope.now_ms(tr), subscription=subscription)
    tr[scope.keys.consumer(session, consumer.id)] = record.pack()
    state = ConsumerState.NOT_INTERESTED if acquiring else ConsumerState.NON_ACQUIRING
    tr[scope.keys.state(subscription, state, priority, consumer.id)] = Listed(session).pack()
    return consumer


def new_id(handle: bytes = b"") -> bytes:
    """The id of a consumer. Those of one handle of a subscription begin alike, which tells whom an
    exclusive one serves."""
    return handle[:_HANDLE_BYTES] + world.urandom(CLAIM_BYTES - len(handle[:_HANDLE_BYTES]))


def registered(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> fdb.Value:
    """Issue the read of a consumer's record, which is gone after its eviction. Conflicts with
    that."""
    return tr.get(keys.consumer(consumer.session, consumer.id))


@transactional
def unregister(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Remove a consumer, and its request in line if any. A guard hands over."""
    line.remove_claim(tr, keys.line_of(consumer.subscription), consumer.id)
    remove(tr, keys, consumer)


@transactional
def superior(
    tr: fdb.Transaction, scope: Scope, priority: int, subscription: str = ""
) -> wakeups.Sleeper | None:
    """A living consumer of a higher priority that sleeps or was notified; None without any.

    subscription: whose consumers to look at; "" for those of the queue itself.

    One round trip, or two if there are such consumers. Conflicts with their moves.
    """
    keys = scope.keys
    ranges = [
        keys.state.before(subscription, state, priority)
        for state in (ConsumerState.NOTIFIED, ConsumerState.INTERESTED)
    ]
    above = []
    # With a conflict: whoever yields to a consumer of a higher priority relies on its being there.
    for read in [tr.get_range(each.start, each.stop, limit=MAX_SUPERIORS) for each in ranges]:
        for kv in read:
            _, _, rank, consumer = keys.state.parse(kv.key)
            listed = Listed.unpack(kv.value)
            ref = ConsumerRef(consumer, rank, listed.session, subscription)
            above.append(wakeups.Sleeper(ref, listed.since))
    if not above:
        return None
    above.sort(key=lambda one: -one.consumer.priority)
    refs = [one.consumer for one in above]
    alive = sessions.alive(tr, scope.root, keys, scope.clock, refs)
    return next((one for one, lives in zip(above, alive, strict=True) if lives), None)


@transactional
def consumers(tr: fdb.Transaction, scope: Scope) -> list[Consumer]:
    """All consumers that are registered or wait, by descending priority. Snapshot reads.

    Of those that stand in line for a moment, or wait there, the first thousand of the queue and of
    its subscriptions.
    """
    keys = scope.keys
    named, listed = keys.consumer.rows, keys.state.rows
    held_by = keys.guard.rows
    roles = tr.snapshot.get_range(held_by.start, held_by.stop)
    held = {
        each.name: tr.snapshot.get(keys.holder(each.name))
        for each in scope.subscriptions
        if each.exclusive
    }
    requests = line.read_all(tr, keys)
    records = tr.snapshot.get_range(named.start, named.stop)
    states = tr.snapshot.get_range(listed.start, listed.stop)
    guarding = {role.id for role in map(wakeups.role_of, roles) if role is not None}
    parsed = [(*keys.consumer.parse(kv.key), ConsumerRecord.unpack(kv.value)) for kv in records]
    reads = {
        session: tr.snapshot.get(scope.root.session(session)) for session, _, _ in parsed if session
    }
    found: dict[bytes, Consumer] = {}
    stored = {session: value.value for session, value in reads.items()}
    known = {session: Session.unpack(value) for session, value in stored.items() if value}
    for session, consumer, entry in parsed:
        process = known.get(session)
        found[consumer] = Consumer(
            id=consumer,
            name=entry.name,
            priority=entry.priority,
            state=None,
            host=process.host if process else "",
            process=process.process if process else 0,
            started_at_ms=entry.started_at_ms,
            seen_at_ms=process.wall_ms if process else entry.wall_ms,
            guard=consumer in guarding,
            session=session,
            subscription=entry.subscription,
            work=tuple(each for each in process.work if each.queue == scope.name)
            if process
            else (),
        )
    for kv in states:
        subscription, state, priority, consumer = keys.state.parse(kv.key)
        session = Listed.unpack(kv.value).session
        guards = consumer in guarding
        lost = Consumer(consumer, "", priority, None, "", 0, 0, 0, guards, session, subscription)
        one = found.get(consumer, lost)
        # A stale wake-up leaves a consumer on two lists; the state notified counts.
        state = state if one.state is None else max(state, one.state)
        found[consumer] = replace(one, state=ConsumerState(state))
    at = sessions.now(tr, scope.clock)
    _list_requests(keys, found, requests, at)
    for name, value in held.items():
        _mark_holder(found, name, value, at)
    return sorted(found.values(), key=lambda one: (-one.priority, one.started_at_ms, one.id))


def _list_requests(
    keys: QueueKeys,
    found: dict[bytes, Consumer],
    requests: fdb.FDBRange,
    at: Moment,
) -> None:
    """Add the living consumers that stand in line and are not registered."""
    registered = {holder_of(consumer) for consumer, one in found.items() if one.session}
    for subscription, index, claim, request in line.parse_all(keys, requests):
        # A registered consumer that stands in line is listed already.
        if holder_of(claim) in registered or not line.alive(at.version, index, request):
            continue
        began_ms, seen_ms = (
            at.wall_ms - (at.version - version) * 1000 // VERSIONS_PER_SECOND
            for version in (index, line.seen(request))
        )
        one = found.get(claim) or Consumer(
            claim, "", request.priority, None, "", 0, 0, 0, False, b"", subscription
        )
        found[claim] = replace(
            one,
            name=request.consumer,
            state=ConsumerState.INTERESTED,
            started_at_ms=began_ms,
            seen_at_ms=max(one.seen_at_ms, seen_ms),
        )


def _mark_holder(
    found: dict[bytes, Consumer], subscription: str, value: fdb.Value, at: Moment
) -> None:
    """Show which consumer an exclusive subscription serves, also if that neither waits nor is
    registered."""
    holder = None if value.value is None else Holder.unpack(value.value)
    if holder is None or not holder.lasts(at):
        return
    handle = holder.token[:_HANDLE_BYTES]
    ours = [one for one in found.values() if one.subscription == subscription]
    holding = [one for one in ours if one.id.startswith(handle)]
    now_ms = at.wall_ms
    unlisted = Consumer(holder.token, "", 0, None, "", 0, now_ms, now_ms, False, b"", subscription)
    for one in holding or [unlisted]:
        found[one.id] = replace(one, holder=True)


class ListReads(NamedTuple):
    """The reads of ``counted``, issued and not awaited."""

    states: fdb.FDBRange
    requests: fdb.FDBRange


def list_reads(tr: fdb.Transaction, keys: QueueKeys) -> ListReads:
    """Issue snapshot reads of who is on which list, and who stands in line."""
    listed = keys.state.rows
    states = tr.snapshot.get_range(listed.start, listed.stop)
    return ListReads(states, line.read_all(tr, keys))


def counted(keys: QueueKeys, reads: ListReads, at: Moment) -> Counter[ConsumerState]:
    """How many of ``consumers`` are in each state."""
    found: dict[bytes, ConsumerState] = {}
    registered = set()
    for kv in reads.states:
        _, state, _, consumer = keys.state.parse(kv.key)
        found[consumer] = ConsumerState(max(state, found.get(consumer, state)))
        if Listed.unpack(kv.value).session:
            registered.add(holder_of(consumer))
    for _, index, claim, request in line.parse_all(keys, reads.requests):
        if holder_of(claim) not in registered and line.alive(at.version, index, request):
            found[claim] = ConsumerState.INTERESTED
    return Counter(found.values())


@transactional
def evict_waiters(tr: fdb.Transaction, scope: Scope) -> list[bytes]:
    """Evict consumers without a session whose own sign of life is too old; returns their ids.

    Only leaders of the line that wait in ``receive`` have no session, so there are few. One round
    trip at snapshot isolation; conflicts with signs of life of the consumers it removes.
    """
    waiting, at = scope.keys.consumer.under(b""), sessions.now(tr, scope.clock)
    gone = []
    for kv in tr.snapshot.get_range(waiting.start, waiting.stop, limit=MAX_WAITERS):
        record = ConsumerRecord.unpack(kv.value)
        if sessions.is_dead(record.heartbeat, at):
            # A sign of life at the same time wins: whoever lives is not removed.
            tr.add_read_conflict_key(kv.key)
            name = scope.keys.consumer.parse(kv.key)[1]
            consumer = ConsumerRef(name, record.priority, subscription=record.subscription)
            remove(tr, scope.keys, consumer)
            gone.append(consumer.id)
    return gone


def keep_alive(tr: fdb.Transaction, scope: Scope, consumer: ConsumerRef) -> bool:
    """A sign of life of a consumer without a session; False if it was evicted. Conflicts with
    that."""
    key = scope.keys.consumer(b"", consumer.id)
    value, at = tr.get(key).value, sessions.now(tr, scope.clock)
    if value is None:
        return False
    renewed = replace(ConsumerRecord.unpack(value), version=at.version, wall_ms=at.wall_ms)
    tr[key] = renewed.pack()
    return True


def remove(tr: fdb.Transaction, keys: QueueKeys, consumer: ConsumerRef) -> None:
    """Remove a consumer; a guard hands over. Conflicts as ``wakeups.withdraw``."""
    del tr[keys.consumer(consumer.session, consumer.id)]
    wakeups.withdraw(tr, keys, consumer)
