"""Sessions: one sign of life for all consumers of a process, in all queues.

Each process keeps one session below a root. The session's record holds the last sign of life, and
an entry in the order of expiry says when the process counts as dead. A heartbeat replaces both and
reads one row of its own; its cost depends neither on consumers nor on processes. Consumers name
their session, and a session names its queues. So any process that finds a dead session at the head
of that order evicts its consumers in bounded steps (``eviction.evict_expired``).

A session that was declared dead stays dead: its next heartbeat fails, and no consumer can be
registered in it. The process then starts a new session and registers its consumers again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import CorruptData
from ..schema.consumers import ConsumerRecord, ConsumerRef, Session, WaitingCalls, Work
from ..schema.keys import QueueKeys, RootKeys
from ..schema.leases import CLAIM_BYTES
from ..store import world
from ..store.binding import fdb, transactional
from ..store.clocks import VERSIONS_PER_SECOND, Clock, Moment

DEAD_SECONDS = 15.0
"""A process counts as dead if its last sign of life is older than this by both clocks."""
BEAT_SECONDS = DEAD_SECONDS / 3
MAX_LISTED = 1_000
"""The most processes of one listing."""
MAX_SESSIONS = 100
"""Expired sessions that one transaction reads."""

_HELD_SECONDS = DEAD_SECONDS + BEAT_SECONDS
_DEAD_VERSIONS = int(DEAD_SECONDS * VERSIONS_PER_SECOND)


class SessionExpired(Exception):
    """Raised when a consumer is to be registered in a session that was declared dead."""


class Expired(NamedTuple):
    """A dead session: its name, its expiry version, and its record if any."""

    session: bytes
    expires_at: int
    record: Session | None


def now(tr: fdb.Transaction, clock: Clock) -> Moment:
    """The moment at which the transaction reads."""
    return Moment(clock.version(tr), clock.now_ms(tr))


def is_dead(heartbeat: Moment, at: Moment) -> bool:
    """Whether a sign of life is too old by both clocks. So neither a wrong wall clock nor a jump of
    versions at a recovery kills a living process. One from a later version comes from another
    cluster."""
    if heartbeat.version > at.version:
        return True
    old = at.version - heartbeat.version > _DEAD_VERSIONS
    return old and at.wall_ms - heartbeat.wall_ms > DEAD_SECONDS * 1000


def leases_end(session: Session | None, at: Moment) -> Moment:
    """When the leases of a dead process end at the latest, by both clocks as any lease does.

    A process that stood still for ``DEAD_SECONDS`` just before its next sign of life was due goes
    on only then; until then they last.
    """
    if session is None or session.version > at.version:
        return at
    version, wall_ms = session.heartbeat
    held = int(_HELD_SECONDS * VERSIONS_PER_SECOND)
    return Moment(version + held, wall_ms + int(_HELD_SECONDS * 1000))


@transactional
def start(tr: fdb.Transaction, root: RootKeys, clock: Clock) -> bytes:
    """Start a session of this process; returns its name. Writes blindly."""
    session, beat = world.urandom(CLAIM_BYTES), now(tr, clock)
    record = Session(socket.gethostname(), os.getpid(), beat.wall_ms, *beat)
    tr[root.session(session)] = record.pack()
    tr[root.session_expiry(_expires_at(record), session)] = b""
    return session


@transactional
def beat(
    tr: fdb.Transaction,
    root: RootKeys,
    clock: Clock,
    session: bytes,
    work: Sequence[Work] = (),
    *,
    waits: WaitingCalls | None = None,
) -> tuple[bool, bool]:
    """Give a sign of life, and tell what the workers do, or for what producers wait; returns
    whether the session lives, and whether another may be dead.

    One round trip, three rows. Conflicts with being declared dead, and with the registration of
    consumers in the session.
    """
    value = tr.get(root.session(session))
    at = now(tr, clock)
    first, last = _ends(tr, root, at)
    overdue = bool(first.to_list() or last.to_list())
    stored = value.value
    if stored is None:
        return False, overdue
    record = Session.unpack(stored)
    if record.expired:
        # Declared dead by somebody who is evicting its consumers: it stays dead, or these would be
        # removed under a living process.
        return False, True
    renewed = replace(record, version=at.version, wall_ms=at.wall_ms, work=tuple(work), waits=waits)
    tr[root.session(session)] = renewed.pack()
    del tr[root.session_expiry(_expires_at(record), session)]
    # Record and entry change in one transaction, so the entry of a living session is always the
    # only one.
    tr[root.session_expiry(_expires_at(renewed), session)] = b""
    return True, overdue


@transactional
def listed(tr: fdb.Transaction, root: RootKeys) -> list[tuple[bytes, Session]]:
    """All processes that have workers or other consumers, or wait for room, also dead ones that
    nobody has removed. A snapshot read, no conflicts."""
    every = root.session.rows
    found = []
    for kv in tr.snapshot.get_range(every.start, every.stop, limit=MAX_LISTED):
        with suppress(CorruptData):
            found.append((root.session.parse(kv.key)[0], Session.unpack(kv.value)))
    return found


@transactional
def end(tr: fdb.Transaction, root: RootKeys, session: bytes) -> None:
    """End a session without consumers. One round trip; conflicts with its heartbeats."""
    value = tr.get(root.session(session)).value
    if value is not None:
        remove(tr, root, Expired(session, _expires_at(Session.unpack(value)), None))


def join(tr: fdb.Transaction, root: RootKeys, session: bytes, queue: str) -> None:
    """Note that a session has consumers in a queue; raises ``SessionExpired``.

    One round trip. Conflicts with a heartbeat of the session, and with its end.
    """
    value = tr.get(root.session(session)).value
    if value is None or Session.unpack(value).expired:
        raise SessionExpired
    tr[root.session_queue(session, queue)] = b""


def alive(
    tr: fdb.Transaction,
    root: RootKeys,
    keys: QueueKeys,
    clock: Clock,
    consumers: Sequence[ConsumerRef],
) -> list[bool]:
    """Whether each consumer of a queue is alive. One round trip at snapshot isolation."""
    keys_read = dict.fromkeys(_record_key(root, keys, one) for one in consumers)
    # Heartbeats change these all the time: a conflict would abort whoever looks.
    values = {key: tr.snapshot.get(key) for key in keys_read}
    at = now(tr, clock)

    def lives(one: ConsumerRef) -> bool:
        value = values[_record_key(root, keys, one)].value
        if value is None:
            return False
        try:
            if not one.session:
                return not is_dead(ConsumerRecord.unpack(value).heartbeat, at)
            session = Session.unpack(value)
        except CorruptData:
            return False
        return not session.expired and not is_dead(session.heartbeat, at)

    return [lives(one) for one in consumers]


@transactional
def expired(tr: fdb.Transaction, root: RootKeys, clock: Clock) -> tuple[list[Expired], bool]:
    """Declare expired sessions dead; returns them, and whether there may be more.

    Reads up to ``MAX_SESSIONS`` rows at the head of the order of expiry, and as many behind the
    last expiry that a living process can have. Conflicts with heartbeats of the sessions it
    returns.
    """
    at = now(tr, clock)
    rows = [kv for found in _ends(tr, root, at, MAX_SESSIONS) for kv in found]
    entries = [root.session_expiry.parse(kv.key) for kv in rows]
    values = [tr.snapshot.get(root.session(session)) for _, session in entries]
    dead = []
    for (version, session), value in zip(entries, values, strict=True):
        try:
            record = None if value.value is None else Session.unpack(value.value)
        except CorruptData:
            record = None
        if record is not None and _expires_at(record) != version:
            del tr[root.session_expiry(version, session)]  # No heartbeat leaves this behind.
        elif record is None or record.expired or is_dead(record.heartbeat, at):
            # Read at snapshot isolation with many others; only what is declared dead must not give
            # a sign of life meanwhile.
            tr.add_read_conflict_key(root.session(session))
            if record is not None and not record.expired:
                # Marked before its consumers are removed, which may take several transactions: from
                # here on no heartbeat revives it.
                tr[root.session(session)] = replace(record, expired=True).pack()
            dead.append(Expired(session, version, record))
    return dead, len(rows) >= MAX_SESSIONS and bool(dead)


def remove(tr: fdb.Transaction, root: RootKeys, gone: Expired) -> None:
    """Remove a session without consumers. Writes blindly."""
    queues = root.session_queue.under(gone.session)
    del tr[root.session(gone.session)]
    del tr[root.session_expiry(gone.expires_at, gone.session)]
    tr.clear_range(queues.start, queues.stop)


def _ends(
    tr: fdb.Transaction, root: RootKeys, at: Moment, limit: int = 1
) -> tuple[fdb.FDBRange, fdb.FDBRange]:
    """Issue reads of the first expired sessions, and of sessions of another cluster."""
    mode = fdb.StreamingMode.exact
    past = root.session_expiry.before(at.version)
    later = root.session_expiry.since(at.version + _DEAD_VERSIONS + 1)
    return (
        tr.snapshot.get_range(past.start, past.stop, limit=limit, streaming_mode=mode),
        tr.snapshot.get_range(later.start, later.stop, limit=limit, streaming_mode=mode),
    )


def _expires_at(session: Session) -> int:
    return session.version + _DEAD_VERSIONS


def _record_key(root: RootKeys, keys: QueueKeys, consumer: ConsumerRef) -> bytes:
    """The key of a consumer's sign of life: of its session, or its own."""
    return root.session(consumer.session) if consumer.session else keys.consumer(b"", consumer.id)
