"""The catalogue of queues: META and the subscriptions, read once and cached.

A change of META also writes ``\\xff/metadataVersion``, which comes with the read version. So a
handle knows without a round trip whether its cache is stale. The change conflicts with every
transaction that relied on the old value.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from ..errors import CorruptData, QueueExists, QueueNotFound, QueueReplaced
from ..store import binding, world
from ..store.binding import fdb, transactional
from ..store.clocks import METADATA_VERSION, Clock
from ..values.options import QueueOptions, parse
from ..values.serializers import Declared
from . import once
from .codec import Part, Stored, unpack
from .consumers import Definition
from .keys import QueueKeys, RootKeys
from .scope import Chore, Noted, Scheme, Scope

log = logging.getLogger("fdbqueue")

IDENTITY_BYTES = 16
"""Random; tells a queue from any other that ever has its name."""
STRAYS_SECONDS = 10.0
MAX_KNOWN = 1_000
"""Queues that a handle keeps in mind since its own has to do with them."""

_STAMP_OPERAND = bytes(14)

_CHANGES = "_fdbqueue_changes"
"""The attribute of a transaction that changes META."""
_RENEWED = "_fdbqueue_renewed"
"""The attribute of a transaction that has begun again, since it missed what was opened later."""


class Pause(Part, frozen=True):
    """Since when a queue is paused (wall clock, milliseconds), and by whom; "" if unknown."""

    since_ms: int
    by: str


class Meta(Stored, frozen=True):
    """A queue as it is stored. noted: what it may have come to, see ``scope.Noted``. pause: None if
    it is not paused, or was created so."""

    identity: str
    options: dict[str, Any]
    serializer: Declared | None = None
    noted: frozenset[Noted] = frozenset()
    pause: Pause | None = None


@transactional
def create(
    tr: fdb.Transaction,
    root: RootKeys,
    name: str,
    options: QueueOptions,
    serializer: Declared | None = None,
) -> None:
    """Create a queue. Raises ``QueueExists``. Conflicts with another creation of that name."""
    # With a conflict: of two that create the same name, one fails, and then finds it.
    if tr.get(root.name(name)).present():
        raise QueueExists(name=name)
    tr[root.name(name)] = b""
    identity = world.urandom(IDENTITY_BYTES).hex()
    _put(tr, root.queue(name), Meta(identity, options.to_json(), serializer))


@transactional
def change(tr: fdb.Transaction, scope: Scope, options: QueueOptions, by: str = "") -> None:
    """Store options. by: who pauses the queue, if they do.

    One round trip. Conflicts with every concurrent operation on the queue.
    """
    stored, pause = _stored(tr, scope), None
    if options.paused:
        pause = stored.pause if scope.options.paused else Pause(scope.now_ms(tr), by)
    _put(tr, scope.keys, replace(stored, options=options.to_json(), pause=pause))


@transactional
def declare(tr: fdb.Transaction, scope: Scope, serializer: Declared | None) -> None:
    """Store what is known of the queue's serializer. As ``change``."""
    _put(tr, scope.keys, replace(_stored(tr, scope), serializer=serializer))


@transactional
def note_use(tr: fdb.Transaction, scope: Scope, use: Noted) -> None:
    """Note that a queue makes some use of its messages from now on. Read the scope again then.

    As ``change``, but only the first time.
    """
    if use not in scope.noted:
        stored = _stored(tr, scope)
        _put(tr, scope.keys, replace(stored, noted=stored.noted | {use}))


def _stored(tr: fdb.Transaction, scope: Scope) -> Meta:
    return Meta.unpack(tr.get(scope.keys.meta).value)


@transactional
def delete(tr: fdb.Transaction, root: RootKeys, name: str) -> None:
    """Delete a queue with everything in it. Raises ``QueueNotFound``.

    Conflicts with every concurrent operation on the queue, so that none leaves anything behind.
    """
    if not tr.get(root.name(name)).present():
        raise QueueNotFound(name=name)
    del tr[root.name(name)]
    everything = root.queue(name).all()
    # Clearing META conflicts with whoever relied on it: no message can come into a queue that is
    # gone.
    tr.clear_range(everything.start, everything.stop)
    _touch(tr)


@transactional
def names(tr: fdb.Transaction, root: RootKeys, after: str | None, limit: int) -> list[str]:
    """The names of up to ``limit`` queues (0: all), sorted. A snapshot read, no conflicts.

    after: the last name of the previous page.
    """
    entries = root.name.under()
    begin = entries.start if after is None else root.name(after) + b"\x00"
    mode = fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(begin, entries.stop, limit=limit, streaming_mode=mode)
    return [root.name.parse(kv.key)[0] for kv in found]


@transactional
def resubscribe(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Invalidate cached subscriptions. Conflicts as ``change``, but writes no key of META."""
    # As if META were written: every transaction in flight has read it with a conflict, and sees the
    # new subscriptions when it retries.
    tr.add_write_conflict_key(keys.meta)
    _touch(tr)


class IssuedRead(Protocol):
    """A read that was issued, and is awaited where its value is asked for."""

    @property
    def value(self) -> object:
        """What was read."""


@dataclass(slots=True, eq=False)
class CachedScope:
    """A handle's view of one queue, with the last scope it has read.

    identity: that of the only queue to accept; None for any with the name. known: the scope as it
    was read last; it may be stale, and is None before the first read. scheme: how it receives; see
    ``Scope``. opened: a version at which there was what was last opened with a database, the queue
    or a subscription; 0 if nothing was.
    """

    name: str
    root: RootKeys
    keys: QueueKeys
    clock: Clock
    identity: str | None = None
    scheme: Scheme = "auto"
    strays: Chore = field(default_factory=partial(Chore, STRAYS_SECONDS))
    known: Scope | None = None
    opened: int = 0
    _read: tuple[bytes | None, Scope] | None = None

    def only(self, identity: str) -> CachedScope:
        """The same queue, accepting no other with its name."""
        found = CachedScope(self.name, self.root, self.keys, self.clock, identity, self.scheme)
        found.opened = self.opened
        return found

    def renew(self, tr: fdb.Transaction) -> None:
        """Raise ``fdb.FDBError`` in a transaction that misses what was opened after it began: the
        caller's loop runs again, and reads at a later version. Once for what is opened, in each
        transaction: versions of another cluster, to which the database has switched, mean nothing.
        """
        renewed: set[int] = tr.__dict__.setdefault(_RENEWED, set())
        if once.version(tr) < self.opened and self.opened not in renewed:
            renewed.add(self.opened)
            error = fdb.FDBError(once.TOO_OLD)
            error.add_note(
                f"queue {self.name!r}, or a subscription of it, was opened after this transaction "
                "began: run the transaction again, as fdbqueue.transactional does"
            )
            raise error

    def force(self, scheme: Scheme) -> None:
        """Receive by one scheme from now on: a hint for benchmarks and tests."""
        self.scheme, self._read = scheme, None

    def scope(self, tr: fdb.Transaction, beside: IssuedRead | None = None) -> Scope:
        """The queue's options and subscriptions, and what follows from them.

        beside: a read that was issued before. The cache is checked by a key that comes with the
            read version, and so before it: then one wait is enough for both.

        One round trip, none while the cache is valid. Conflicts with a change of the options or the
        subscriptions and with the deletion of the queue. Raises ``QueueNotFound``,
        ``QueueReplaced``, ``CorruptData``, ``StoreForked``.
        """
        if binding.forked:
            binding.check_process()
        # A transaction that has written it could not commit after reading it.
        # At snapshot isolation: the key changes with any queue of the cluster, while the conflict
        # on META concerns this one.
        stamped = None if _CHANGES in tr.__dict__ else tr.snapshot.get(METADATA_VERSION)
        if beside is not None:
            _ = beside.value
        stamp = None if stamped is None else stamped.value
        read = self._read  # Another thread may replace it meanwhile.
        if read is not None and stamp is not None and read[0] == stamp:
            # The cached scope stands in for a read of META: without this conflict, a change that
            # commits meanwhile would be missed.
            tr.add_read_conflict_range(self.keys.meta, self.keys.meta + b"\x00")
            scope = read[1]
        else:
            scope = self._scope(tr)
            self._read, self.known = (stamp, scope), scope
        if self.identity is not None and scope.identity != self.identity:
            raise QueueReplaced(name=self.name)
        return scope

    def _scope(self, tr: fdb.Transaction) -> Scope:
        keys = self.keys
        every = keys.subscription.rows  # A conflict on META covers them.
        subscribed = tr.snapshot.get_range(every.start, every.stop)
        value = tr.get(keys.meta).value
        if value is None:
            self.renew(tr)
            raise QueueNotFound(name=self.name)
        meta, options = parsed(value, self.name)
        subscriptions = []
        for kv in subscribed:
            try:
                subscriptions.append(Definition.unpack(kv.value))
            except CorruptData as error:
                # One unreadable subscription must not stop the queue: its consumers fail, everybody
                # else goes on.
                log.warning("ignoring subscription %s: %s", kv.key.hex(), error)
        return Scope(
            self.name,
            meta.identity,
            self.root,
            keys,
            options,
            self.clock,
            tuple(subscriptions),
            self.strays,
            meta.noted,
            self.scheme,
            meta.serializer,
        )


def other(tr: fdb.Transaction, scope: Scope, name: str) -> Scope:
    """The scope of a queue of the same root, as ``CachedScope.scope``."""
    return scope if name == scope.name else found(tr, scope.root, name, scope.clock)


def found(tr: fdb.Transaction, root: RootKeys, name: str, clock: Clock) -> Scope:
    """The scope of a queue of which no handle is there, as ``CachedScope.scope``."""
    entry = root.known.get(name)
    # A test may drive two clocks in one process; their scopes must not mix.
    if not isinstance(entry, CachedScope) or entry.clock is not clock:
        if len(root.known) >= MAX_KNOWN:
            root.known.clear()
        entry = root.known[name] = CachedScope(name, root, root.queue(name), clock)
    return entry.scope(tr)


def _touch(tr: fdb.Transaction) -> None:
    """Invalidate every handle's cache."""
    tr.__dict__[_CHANGES] = True
    # FoundationDB sends this key along with each read version: caches everywhere are checked
    # without a round trip.
    tr.set_versionstamped_value(METADATA_VERSION, _STAMP_OPERAND)


def _put(tr: fdb.Transaction, keys: QueueKeys, meta: Meta) -> None:
    if meta.options["keys"]["rate"] is not None:
        meta = replace(meta, noted=meta.noted | {"rates"})
    tr[keys.meta] = meta.pack()
    _touch(tr)


def parsed(value: bytes, name: str) -> tuple[Meta, QueueOptions]:
    """A value of META, and the options in it; raises ``CorruptData``."""
    what = f"queue {name!r}"
    meta = unpack(value, Meta, what)
    return meta, parse(meta.options, what)
