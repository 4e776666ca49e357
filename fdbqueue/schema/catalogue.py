"""Which queues there are, and what they are: META and the subscriptions, read once and cached.

``\\xff/metadataVersion`` comes with the read version, so a handle learns without a round trip that
what it has cached is stale. A change of META writes it, and conflicts with every transaction that
relied on what was there before.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ..errors import CorruptData, FormatTooNew, QueueExists, QueueNotFound, QueueReplaced
from ..store import binding
from ..store.binding import fdb, transactional
from ..store.clocks import METADATA_VERSION, Clock
from ..values.options import QueueOptions, kept, parse
from . import subscription_definitions
from .keys import QueueKeys, RootKeys
from .scope import Chore, Scope

FORMAT_VERSION = 2
"""1 had no identity."""
IDENTITY_BYTES = 16
"""Random; names a queue for ever, so that another one of the same name is not taken for it."""
STRAYS_SECONDS = 10.0

_STAMP_OPERAND = bytes(14)

_CHANGES = "_fdbqueue_changes"
"""The attribute of a transaction that changes META."""


@transactional
def create(tr: fdb.Transaction, root: RootKeys, name: str, options: QueueOptions) -> None:
    """Create a queue. Raises ``QueueExists``. Conflicts with another creation of the name."""
    if tr.get(root.name(name)).present():
        raise QueueExists(name=name)
    tr[root.name(name)] = b""
    _write(tr, root.queue(name), os.urandom(IDENTITY_BYTES).hex(), options)


@transactional
def change(tr: fdb.Transaction, scope: Scope, options: QueueOptions) -> None:
    """Store other options. Conflicts with every operation on the queue that is under way.

    What a later release has stored beside them stays. One round trip.
    """
    stored = json.loads(tr.get(scope.keys.meta).value or b"{}")
    given = kept(stored.get("options"), options)
    _put(tr, scope.keys, {**stored, "identity": scope.identity, "options": given})


@transactional
def delete(tr: fdb.Transaction, root: RootKeys, name: str) -> None:
    """Delete a queue and all that is in it. Raises ``QueueNotFound``.

    Conflicts with every operation on the queue that is under way, so that none of them can leave
    something behind.
    """
    if not tr.get(root.name(name)).present():
        raise QueueNotFound(name=name)
    del tr[root.name(name)]
    everything = root.queue(name).all()
    tr.clear_range(everything.start, everything.stop)
    _touch(tr)


@transactional
def names(tr: fdb.Transaction, root: RootKeys, after: str | None, limit: int) -> list[str]:
    """The names of up to ``limit`` queues (0: of all), sorted. A snapshot read, no conflicts.

    after: the name behind which to go on.
    """
    entries = root.names()
    begin = entries.start if after is None else root.name(after) + b"\x00"
    mode = fdb.StreamingMode.want_all
    found = tr.snapshot.get_range(begin, entries.stop, limit=limit, streaming_mode=mode)
    return [root.parse_name(kv.key) for kv in found]


@transactional
def resubscribe(tr: fdb.Transaction, keys: QueueKeys) -> None:
    """Say that the subscriptions have changed. Conflicts as ``change``; writes no key of META."""
    tr.add_write_conflict_key(keys.meta)
    _touch(tr)


class Entry:
    """One queue as a handle knows it, and its scope as it was read last.

    identity: that of the queue which it must be; of any with its name where None.
    """

    __slots__ = ("_read", "clock", "identity", "keys", "name", "root", "strays")

    def __init__(self, name: str, root: RootKeys, keys: QueueKeys, clock: Clock) -> None:
        self.name = name
        self.root = root
        self.keys = keys
        self.clock = clock
        self.identity: str | None = None
        self.strays = Chore(STRAYS_SECONDS)
        self._read: tuple[bytes | None, Scope] | None = None

    def only(self, identity: str) -> Entry:
        """The same queue, as long as no other has its name."""
        entry = Entry(self.name, self.root, self.keys, self.clock)
        entry.identity = identity
        return entry

    @property
    def known(self) -> Scope | None:
        """The scope as it was read last, if it was; it may be stale."""
        return None if self._read is None else self._read[1]

    def scope(self, tr: fdb.Transaction) -> Scope:
        """The queue's options and subscriptions, and what follows from them.

        No round trip of its own while what was read last is valid, else one. Conflicts with a
        change of the options or the subscriptions and the deletion of the queue. Raises
        ``QueueNotFound``, ``QueueReplaced``, ``FormatTooNew``, ``StoreForked``.
        """
        if binding.forked:
            binding.check_process()
        # In a transaction that changes it itself, reading it would fail the commit.
        stamp = None if _CHANGES in tr.__dict__ else tr.snapshot.get(METADATA_VERSION).value
        read = self._read  # Another thread may replace it meanwhile.
        if read is not None and stamp is not None and read[0] == stamp:
            tr.add_read_conflict_range(self.keys.meta, self.keys.meta_end)
            scope = read[1]
        else:
            scope = self._scope(tr)
            self._read = stamp, scope
        if self.identity is not None and scope.identity != self.identity:
            raise QueueReplaced(name=self.name)
        return scope

    def _scope(self, tr: fdb.Transaction) -> Scope:
        keys = self.keys
        subscribed = subscription_definitions.reads(tr, keys)
        value = tr.get(keys.meta).value
        if value is None:
            raise QueueNotFound(name=self.name)
        identity, options = _parsed(value, self.name)
        subscriptions = subscription_definitions.parse(keys, subscribed)
        return Scope(
            self.name, identity, self.root, keys, options, self.clock, subscriptions, self.strays
        )


def _touch(tr: fdb.Transaction) -> None:
    """Tell every handle that what it has cached is stale."""
    tr.__dict__[_CHANGES] = True
    tr.set_versionstamped_value(METADATA_VERSION, _STAMP_OPERAND)


def _write(tr: fdb.Transaction, keys: QueueKeys, identity: str, options: QueueOptions) -> None:
    _put(tr, keys, {"format": FORMAT_VERSION, "identity": identity, "options": options.to_json()})


def _put(tr: fdb.Transaction, keys: QueueKeys, stored: dict[str, Any]) -> None:
    tr[keys.meta] = json.dumps(stored, sort_keys=True).encode()
    _touch(tr)


def parsed(value: bytes, name: str) -> QueueOptions:
    """The options in a value of META; raises ``FormatTooNew`` or ``CorruptData``."""
    return _parsed(value, name)[1]


def _parsed(value: bytes, name: str) -> tuple[str, QueueOptions]:
    what = f"queue {name!r}"
    try:
        stored: Any = json.loads(value)
        found = int(stored["format"])
        if found > FORMAT_VERSION:
            raise FormatTooNew(what=what, found=found, known=FORMAT_VERSION)
        if found < FORMAT_VERSION:
            raise CorruptData(what=what, problem=f"format version {found} is not read any more")
        identity, given = str(stored["identity"]), stored["options"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(what=what, problem=repr(error)) from None
    return identity, parse(given, what)
