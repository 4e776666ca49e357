"""The engine makes of random programs what a FoundationDB server made of them.

See ``tests/programs``. That the comparison would notice is shown by planting faults in the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage.snapshots import Snapshot, Snapshots
from fdbqueue.store.embedded.transactions import atomic, range_reads, reads
from fdbqueue.store.embedded.transactions.ranges import NO_RANGES
from fdbqueue.store.embedded.transactions.transaction import EmbeddedTransaction
from fdbqueue.store.embedded.transactions.write_map import WriteMap
from tests.programs import golden, running

GOLDEN = golden.load()
GROUPS = 5
LAG = 3
"""After how many others a stale snapshot is lent."""
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_return_what_a_server_returned(db: fdb.Database, group: int) -> None:
    assert len(GOLDEN) >= 100
    for one in GOLDEN[group::GROUPS]:
        found = golden.difference(one, running.run(db, one.program))
        assert found is None, found


def max_as_min(patch: Patch) -> None:
    patch.setitem(atomic._FUNCTIONS, atomic.MAX, atomic._min)


def add_without_carry(patch: Patch) -> None:
    patch.setitem(atomic._FUNCTIONS, atomic.ADD, atomic._xor)


def no_value_is_zero_to_min(patch: Patch) -> None:
    patch.setattr(atomic, "modern", lambda op: op)
    patch.setitem(atomic._FUNCTIONS, atomic.MIN_V2, atomic._min)


def no_off_end(patch: Patch) -> None:
    original = range_reads.SnapshotReader.range

    def range_(self: range_reads.SnapshotReader, *arguments: Any) -> range_reads.RangeResult:
        return original(self, *arguments)._replace(off_end=False)

    patch.setattr(range_reads.SnapshotReader, "range", range_)


def no_off_begin(patch: Patch) -> None:
    original = range_reads.SnapshotReader.range

    def range_(self: range_reads.SnapshotReader, *arguments: Any) -> range_reads.RangeResult:
        return original(self, *arguments)._replace(off_begin=False)

    patch.setattr(range_reads.SnapshotReader, "range", range_)


def own_clears_are_not_read(patch: Patch) -> None:
    original = range_reads.SnapshotReader._uncleared

    def uncleared(self: range_reads.SnapshotReader, writes: WriteMap, *arguments: Any) -> Any:
        cleared, writes.cleared = writes.cleared, NO_RANGES
        try:
            yield from original(self, writes, *arguments)
        finally:
            writes.cleared = cleared

    patch.setattr(range_reads.SnapshotReader, "_uncleared", uncleared)


def own_writes_conflict(patch: Patch) -> None:
    def unmodified(self: WriteMap, begin: bytes, end: bytes) -> Any:
        yield begin, end

    patch.setattr(WriteMap, "unmodified", unmodified)


def stale_snapshots(patch: Patch) -> None:
    original, held = Snapshots.acquire, list[tuple[Snapshot, int]]()

    def acquire(self: Snapshots) -> tuple[Snapshot, int]:
        held.append(original(self))
        stale, version = held.pop(0) if len(held) > LAG else held[0]
        # Nothing that may be lent once more is closed.
        held[-1][0].users += 1
        return stale, version

    patch.setattr(Snapshots, "acquire", acquire)


def later_read_versions(patch: Patch) -> None:
    original = Snapshots.acquire

    def acquire(self: Snapshots) -> tuple[Snapshot, int]:
        snapshot, version = original(self)
        return snapshot, version + 1_000_000

    patch.setattr(Snapshots, "acquire", acquire)


def snapshot_reads_conflict(patch: Patch) -> None:
    original = reads._get_range

    def get_range(tr: EmbeddedTransaction, *arguments: Any) -> Any:
        begin_key, begin, end_key, end, limit, size, _, reverse = arguments
        return original(tr, begin_key, begin, end_key, end, limit, size, 0, reverse)

    patch.setattr(reads, "_get_range", get_range)


def clears_conflict_with_nothing(patch: Patch) -> None:
    original = WriteMap.clear

    def clear(self: WriteMap, begin: bytes, end: bytes, conflict: bool) -> None:
        original(self, begin, end, conflict=False)

    patch.setattr(WriteMap, "clear", clear)


def conflicts_end_a_key_early(patch: Patch) -> None:
    original = range_reads.range_conflict

    def range_conflict(*arguments: Any) -> tuple[bytes, bytes]:
        low, high = original(*arguments)
        return low, high.removesuffix(b"\0")

    patch.setattr(reads, "range_conflict", range_conflict)


def stamped_keys_can_be_read(patch: Patch) -> None:
    patch.setattr(WriteMap, "_add_unreadable", lambda self, begin, end: None)


def next_write_conflicts_all_the_same(patch: Patch) -> None:
    original = WriteMap.mutate

    def mutate(self: WriteMap, op: int, key: bytes, operand: bytes, conflict: bool) -> None:
        original(self, op, key, operand, conflict=True)

    patch.setattr(WriteMap, "mutate", mutate)


def limits_are_forgotten_in_reverse(patch: Patch) -> None:
    original = range_reads.SnapshotReader.range

    def range_(self: range_reads.SnapshotReader, *arguments: Any) -> range_reads.RangeResult:
        begin, end, limit, size, reverse = arguments
        return original(self, begin, end, -1 if reverse else limit, size, reverse)

    patch.setattr(range_reads.SnapshotReader, "range", range_)


MUTANTS: list[Callable[[Patch], None]] = [
    max_as_min,
    add_without_carry,
    no_value_is_zero_to_min,
    no_off_end,
    no_off_begin,
    own_clears_are_not_read,
    own_writes_conflict,
    stale_snapshots,
    later_read_versions,
    snapshot_reads_conflict,
    clears_conflict_with_nothing,
    conflicts_end_a_key_early,
    stamped_keys_can_be_read,
    next_write_conflicts_all_the_same,
    limits_are_forgotten_in_reverse,
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("plant", MUTANTS, ids=lambda plant: plant.__name__)
def test_a_fault_planted_in_the_engine_is_noticed(
    db: fdb.Database, monkeypatch: Patch, plant: Callable[[Patch], None]
) -> None:
    plant(monkeypatch)
    results = ((one, running.run(db, one.program)) for one in GOLDEN)
    assert any(golden.difference(one, result) for one, result in results)
