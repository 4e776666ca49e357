"""The reads of a transaction: keys, selectors, ranges, sizes, and watches."""

from __future__ import annotations

from collections.abc import Iterator

from .. import codes
from ..codes import Fault
from ..futures import Future, failed
from . import read_view, special_keys
from .range_reads import KeySelector, SnapshotReader, key_conflict, range_conflict
from .size_limits import (
    KEY_LIMIT,
    METADATA_VERSION,
    RANGE_BYTES,
    SPECIAL,
    SYSTEM,
    UNLIMITED,
    byte_limit,
    longest,
    write_key_limit,
)
from .transaction import EmbeddedTransaction, Handle, live

_ADDRESS = b"127.0.0.1:4500"


def fdb_transaction_get(handle: Handle, key: bytes, length: int, snapshot: int) -> Future:
    """The value of a key, or None."""
    tr = live[handle]
    with tr.lock:
        if tr.plain and length <= KEY_LIMIT and (key < SYSTEM or key == METADATA_VERSION):
            try:
                writes = tr.writes
                if key in writes.stacks or writes.cleared.begins or writes.unreadable.begins:
                    return Future(_get(tr, key, snapshot))
                state = read_view.current(tr)
                if not snapshot:
                    tr.reads.keys.add(key)
                    tr.approximate += 2 * length + 1 + RANGE_BYTES
                return Future(state.get(key))
            except Exception as error:
                return _failed(tr, error)
        return _get_checked(tr, key, snapshot)


def _get_checked(tr: EmbeddedTransaction, key: bytes, snapshot: int) -> Future:
    """The value of a key in any case."""
    try:
        if key.startswith(SPECIAL):
            return Future(special_keys.get(tr, key))
        tr.check()
        if key >= SYSTEM and key >= tr.read_limit and key != METADATA_VERSION:
            raise Fault(codes.OUTSIDE_LEGAL_RANGE)
        # No write accepts such a key, so it has no value.
        if len(key) > KEY_LIMIT and len(key) > longest(key):
            return Future(None)
    except Fault as error:
        return failed(error.code)
    try:
        return Future(_get(tr, key, snapshot))
    except Exception as error:
        return _failed(tr, error)


def _failed(tr: EmbeddedTransaction, error: Exception) -> Future:
    # As on a cluster, the commit fails with it, too, even if nobody asks for the result.
    if tr.read_error is None:
        tr.read_error = error
    return Future(error=error)


def _get(tr: EmbeddedTransaction, key: bytes, snapshot: int) -> bytes | None:
    writes = tr.writes
    options = tr.options
    own = writes.shadows and not _hidden(tr, snapshot)
    if own:
        if writes.unreadable.begins and not options.bypass_unreadable and key in writes.unreadable:
            raise Fault(codes.UNREADABLE)
        # Own writes need no read version, so such a transaction never becomes too old.
        if writes.is_independent(key):
            return writes.value(key, None)
        own = key in writes.stacks
        if not own and key in writes.cleared:
            return None
    state = read_view.current(tr)
    if not snapshot:
        tr.reads.keys.add(key)
        if not options.read_your_writes_disabled:
            tr.approximate += 2 * len(key) + 1 + RANGE_BYTES
    value = state.get(key)
    return writes.value(key, value) if own else value


def _hidden(tr: EmbeddedTransaction, snapshot: int) -> bool:
    """Whether a read does not see the transaction's own writes."""
    options = tr.options
    return options.read_your_writes_disabled or bool(
        snapshot and options.snapshot_reads_writes <= 0
    )


def _may_look(tr: EmbeddedTransaction) -> bool:
    """Whether a read may look at the snapshot first: own writes alone may tell what it asks, and
    that must take no read version."""
    return tr.snapshot is not None or not tr.writes.shadows


def _reader(tr: EmbeddedTransaction, snapshot: int) -> SnapshotReader:
    """The reader for reads of more than one key."""
    writes = None if _hidden(tr, snapshot) else tr.writes
    return SnapshotReader(
        lambda: read_view.current(tr), writes, tr.read_limit, tr.options.bypass_unreadable
    )


def fdb_transaction_get_key(
    handle: Handle, key: bytes, length: int, or_equal: int, offset: int, snapshot: int
) -> Future:
    """The key that a selector resolves to."""
    tr = live[handle]
    with tr.lock:
        try:
            if not tr.plain:
                tr.check()
            limit = SYSTEM if tr.plain else tr.read_limit
            if key > limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
        except Fault as error:
            return failed(error.code)
        try:
            start = key + b"\0" if or_equal else key
            found = None
            if tr.plain and 0 <= offset <= 1 and _may_look(tr):
                view = read_view.current(tr)
                if offset:
                    found = view.edge(start, limit, last=False) or limit
                    passed = start, found + b"\0"
                else:
                    found = view.edge(b"", start if start < limit else limit, last=True) or b""
                    passed = found, start
                # Own writes lie on the way: only the merged view tells which key comes next.
                if tr.writes.shadows and tr.writes.touches(*passed):
                    found = None
            if found is None:
                found = _reader(tr, snapshot).resolve(KeySelector(start, offset)).key
            if not snapshot:
                tr.note_read_range(*key_conflict(KeySelector(start, offset), found))
            return Future(found if found < limit else limit)
        except Exception as error:
            return _failed(tr, error)


def fdb_transaction_get_range(
    handle: Handle,
    begin: bytes,
    begin_length: int,
    begin_or_equal: int,
    begin_offset: int,
    end: bytes,
    end_length: int,
    end_or_equal: int,
    end_offset: int,
    limit: int,
    target_bytes: int,
    mode: int,
    iteration: int,
    snapshot: int,
    reverse: int,
) -> Future:
    """The rows between two selectors, and whether there may be more."""
    tr = live[handle]
    with tr.lock:
        try:
            size = byte_limit(limit or UNLIMITED, target_bytes or UNLIMITED, mode, iteration)
        except Fault as error:
            return failed(error.code)
        low = begin + b"\0" if begin_or_equal else begin
        high = end + b"\0" if end_or_equal else end
        if (
            tr.plain
            and begin_offset == end_offset == 1
            and low < high <= SYSTEM
            and limit >= 0 <= target_bytes
            and _may_look(tr)
        ):
            try:
                rows, more = read_view.current(tr).range(low, high, bool(reverse), limit, size)
                first, last = low, high
                # Only as far as it was read: what lies behind is no conflict.
                if more and reverse:
                    first = rows[-1][0]
                elif more:
                    last = rows[-1][0] + b"\0"
                if not (tr.writes.shadows and tr.writes.touches(first, last)):
                    if not snapshot:
                        tr.note_read_range(first, last)
                    return Future((rows, more))
            except Exception as error:
                return _failed(tr, error)
        ends = KeySelector(low, begin_offset), end, KeySelector(high, end_offset)
        return _get_range(tr, begin, *ends, limit or UNLIMITED, size, snapshot, reverse)


def _get_range(
    tr: EmbeddedTransaction,
    begin_key: bytes,
    begin: KeySelector,
    end_key: bytes,
    end: KeySelector,
    limit: int,
    size: int,
    snapshot: int,
    reverse: int,
) -> Future:
    """The rows between two selectors in any case."""
    try:
        if begin_key.startswith(SPECIAL) and end_key.startswith(SPECIAL):
            rows = special_keys.get_range(tr, begin, end, limit, bool(reverse))
            return Future((rows, False))
        tr.check()
        legal = tr.read_limit
        if begin_key > legal or end_key > legal:
            raise Fault(codes.OUTSIDE_LEGAL_RANGE)
        if limit < -1 or size < -1:
            raise Fault(codes.LIMITS_INVALID)
        if begin.offset >= end.offset and begin.key >= end.key:
            return Future(([], False))
    except Fault as error:
        return failed(error.code)
    try:
        if begin_key.startswith(special_keys.TIME_KEEPER):
            return Future((special_keys.time_kept(tr, begin, end), False))
        reader = _reader(tr, snapshot)
        result = reader.range(begin, end, limit, size, bool(reverse))
        if not snapshot:
            tr.note_read_range(*range_conflict(begin, end, result, bool(reverse), legal))
        return Future((result.rows, result.more))
    except Exception as error:
        return _failed(tr, error)


def fdb_transaction_get_estimated_range_size_bytes(
    handle: Handle, begin: bytes, begin_length: int, end: bytes, end_length: int
) -> Future:
    """The size in bytes of the keys and values in a range, estimated if they are many."""
    tr = live[handle]
    with tr.lock:
        try:
            if begin > end:
                raise Fault(codes.INVERTED_RANGE)
            tr.check()
            return Future(sum(size for _, size in _sizes(tr, begin, end)))
        except Exception as error:
            return Future(error=error)


def fdb_transaction_get_range_split_points_with_limit(
    handle: Handle,
    begin: bytes,
    begin_length: int,
    end: bytes,
    end_length: int,
    chunk: int,
    limit: int,
) -> Future:
    """Keys that cut a range into chunks of about a given size, its ends included.

    At most limit keys between the ends, if it is not negative. Bindings from 8.0 on call this.
    """
    tr = live[handle]
    with tr.lock:
        try:
            if begin > end:
                raise Fault(codes.INVERTED_RANGE)
            tr.check()
            if begin > tr.read_limit or end > tr.read_limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            points = [begin]
            filled = 0
            for key, size in _sizes(tr, begin, end):
                if len(points) - 1 == limit:
                    break
                if filled >= chunk:
                    points.append(key)
                    filled = 0
                filled += size
            if points[-1] != end:
                points.append(end)
            return Future(points)
        except Exception as error:
            return Future(error=error)


def fdb_transaction_get_range_split_points(
    handle: Handle, begin: bytes, begin_length: int, end: bytes, end_length: int, chunk: int
) -> Future:
    """The same for the bindings before 8.0: with no limit to the number of keys."""
    return fdb_transaction_get_range_split_points_with_limit(
        handle, begin, begin_length, end, end_length, chunk, -1
    )


def _sizes(tr: EmbeddedTransaction, begin: bytes, end: bytes) -> Iterator[tuple[bytes, int]]:
    """The sizes of the rows in a range now, whatever version the transaction reads at."""
    snapshot, _ = tr.store.snapshots.acquire()
    try:
        yield from snapshot.sizes(begin, end)
    finally:
        tr.store.snapshots.release(snapshot)


def fdb_transaction_get_addresses_for_key(handle: Handle, key: bytes, length: int) -> Future:
    """Where a key is stored."""
    tr = live[handle]
    with tr.lock:
        try:
            tr.check()
            return Future([_ADDRESS])
        except Fault as error:
            return failed(error.code)


def fdb_transaction_watch(handle: Handle, key: bytes, length: int) -> Future:
    """A future that is done once the value of the key has changed."""
    tr = live[handle]
    with tr.lock:
        try:
            tr.check()
            if tr.options.read_your_writes_disabled:
                raise Fault(codes.WATCHES_DISABLED)
            if key >= SPECIAL or (key >= tr.read_limit and key != METADATA_VERSION):
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            if len(key) > write_key_limit(key, tr.options.raw_access):
                raise Fault(codes.KEY_TOO_LARGE)
            # With a conflict, as on a cluster: the value it saw is the one that the commit builds
            # on.
            watch = tr.database.new_watch(key, _get(tr, key, snapshot=0))
            watch.seen = tr.store.watches.count(key)
            if not tr.watching:
                tr.watching = []
            tr.watching.append(watch)
            return watch
        except Exception as error:
            return Future(error=error)
