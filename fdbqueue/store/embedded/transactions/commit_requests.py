"""The request to commit a transaction, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from zlib import adler32, crc32

from ..storage import sampling
from ..storage.conflicts import encode
from ..storage.versions import FIRST_SLOT, SLOTS
from . import atomic
from .ranges import KeySet

Mutation = tuple[int, bytes, bytes | None]
"""Type, key, and operand; for CLEAR_RANGE the end of the range, or None for the one key."""

_PLAIN = {atomic.SET} | atomic.PLAIN_TYPES - {atomic.COMPARE_AND_CLEAR}


class CommitTurn(Protocol):
    """What a request waits for: a lock that is held, or what stands in its place.

    Attributes:
        release: tells that the request is done, or is to lead. It is written in C: once it is
            called, nothing interrupts it.
    """

    @property
    def release(self) -> Callable[[], object]: ...

    def locked(self) -> bool:
        """Whether it is not released."""


class CommitRequest:
    """One transaction's part of a commit.

    Args:
        read_version: what it read at, or None if it read nothing.
        size: roughly how many bytes it writes.

    Attributes:
        plain: whether `prepare` found mutations that need nothing but the values they change. Then
            the next four say what to do, and `record` is the line for the log.
        rows: the keys to set, with values and checksums.
        changes: the mutations of values of other keys.
        clears: keys to clear, each as the argument of a statement.
        slots: what to raise for watches.
        sampled: the keys of the sample with their sizes; None for those that are cleared.
        report: whether to find out which ranges conflict.
        deadline: when to give up waiting for the commit lock, by the monotonic clock; 0 for never.
        its_turn: what `Snapshots.take_turn` gave; 0 if it has none.
        turn: held until the request is done, or it is its thread's turn to lead.
        begun: whether its group holds the lock; kept only if there is a deadline.
        withdrawn: whether its thread gave up waiting before that.
    """

    # The outcome; class attributes, because most requests change few of them.
    conflicting: Sequence[KeySet] = ()
    version = -1
    order = 0
    error: BaseException | None = None
    done = False
    plain = False
    rows: Sequence[tuple[bytes, bytes, int]] = ()
    changes: Sequence[Mutation] = ()
    clears: Sequence[tuple[bytes]] = ()
    slots: Iterable[int] = ()
    sampled: Sequence[tuple[bytes, int | None]] = ()
    record = b""
    report = False
    deadline = 0.0
    its_turn = 0
    turn: CommitTurn | None = None
    begun = False
    withdrawn = False

    def __init__(
        self,
        read_version: int | None,
        reads: KeySet,
        writes: KeySet,
        mutations: Sequence[Mutation],
        size: int,
    ) -> None:
        self.read_version = read_version
        self.reads = reads
        self.writes = writes
        self.mutations = mutations
        self.size = size
        self._asked = writes, mutations

    def stamp(self, version: int) -> None:
        """Fill in the versionstamps of a commit at a version, with what is written by them.

        Before anything later in the group is judged: as a cluster's proxy stamps before its
        resolver judges, so that a read of what a stamped key turns out to be conflicts with it.
        """
        writes, mutations = self._asked
        if not any(op in atomic.STAMPED_TYPES for op, _, _ in mutations):
            return
        ten_bytes = atomic.stamp(version, self.order)
        # A copy: a group that is repeated request by request is stamped anew from what was asked.
        self.writes = KeySet()
        self.writes.update(writes)
        self.mutations = [self._stamped(ten_bytes, *mutation) for mutation in mutations]

    def _stamped(self, ten_bytes: bytes, op: int, key: bytes, operand: bytes | None) -> Mutation:
        if op == atomic.SET_VERSIONSTAMPED_KEY:
            stamped = atomic.stamped(key, ten_bytes)
            self.writes.keys.add(stamped)
            return atomic.SET, stamped, operand
        if op == atomic.SET_VERSIONSTAMPED_VALUE:
            assert operand is not None
            return atomic.SET, key, atomic.stamped(operand, ten_bytes)
        return op, key, operand

    def prepare(self) -> None:
        """Do what needs no lock, unless a key is changed more than once."""
        rows: list[tuple[bytes, bytes, int]] = []
        changes: list[Mutation] = []
        clears: list[tuple[bytes]] = []
        slots: dict[int, None] = {}
        for op, key, operand in self.mutations:
            # Versionstamps, ranges and conditions need the state at commit: the lock's holder
            # applies these one by one.
            if op not in _PLAIN:
                return
            number = crc32(key)
            slots[FIRST_SLOT + number % SLOTS] = None
            if operand is None:
                clears.append((key,))
            elif op == atomic.SET:
                rows.append((key, operand, adler32(operand, adler32(key))))
            else:
                changes.append((op, key, operand))
            if number * sampling.SPREAD % sampling.BITS < sampling.BOUND:
                if op != atomic.SET:
                    # Its size depends on the old value.
                    return
                size = None if operand is None else len(key) + len(operand)
                self.sampled = [*self.sampled, (key, size)]
        # A key that is changed twice needs its mutations in their order, which statements by kind
        # do not keep.
        if len(slots) < len(self.mutations) != len({key for _, key, _ in self.mutations}):
            return
        self.rows, self.changes, self.clears = rows, changes, clears
        self.slots = slots
        self.record = encode(self.writes)
        self.plain = True
