"""The writes of a transaction, and the conflict ranges that a program adds itself.

A write cannot fail: what is wrong with one is reported by the next call that can.
"""

from __future__ import annotations

from .. import codes
from ..codes import Fault
from ..futures import Future, failed, reported
from . import atomic, special_keys
from .atomic import SET, VALUE_LIMIT
from .size_limits import (
    KEY_LIMIT,
    METADATA_VERSION,
    MUTATION_BYTES,
    RANGE_BYTES,
    SPECIAL,
    SYSTEM,
    cut,
    longest,
    write_key_limit,
)
from .transaction import EmbeddedTransaction, Handle, live

# Of a set or an atomic mutation and its conflict range, beside the key three times and the operand.
_WRITE_BYTES = MUTATION_BYTES + RANGE_BYTES + 1
_METADATA_OPERAND = b"\0" * 14


def fdb_transaction_set(
    handle: Handle, key: bytes, key_length: int, value: bytes, value_length: int
) -> None:
    """Set a key."""
    tr = live[handle]
    with tr.lock:
        if not tr.plain or key >= SYSTEM or key_length > KEY_LIMIT or value_length > VALUE_LIMIT:
            _set(tr, key, value)
            return
        tr.approximate += 3 * key_length + value_length + _WRITE_BYTES
        tr.writes.mutate(SET, key, value, True)
        if tr.watching:
            _trigger(tr, key, key + b"\0", value, known=True)


def _set(tr: EmbeddedTransaction, key: bytes, value: bytes) -> None:
    """Set a key in any case."""
    try:
        if tr.deferred:
            return
        if key == METADATA_VERSION:
            raise Fault(codes.INVALID_OPERATION)
        if key.startswith(SPECIAL):
            special_keys.write(tr, key)
            return
    except Fault as error:
        tr.defer(error)
    else:
        _mutate(tr, SET, key, value)


def _takes_conflict(tr: EmbeddedTransaction) -> bool:
    """Whether the present write conflicts; the option against it holds for one write."""
    if not tr.options.next_write_no_conflict:
        return True
    tr.options = tr.options.copy()
    tr.options.next_write_no_conflict = False
    return False


def _write_directly(
    tr: EmbeddedTransaction, op: int, key: bytes, value: bytes | None, conflict: bool
) -> None:
    if not tr.direct:
        tr.direct = []
    tr.direct.append((op, key, value))
    if conflict:
        if op == atomic.CLEAR_RANGE and value is not None:
            tr.writes.conflicts.add_range(key, value)
        else:
            tr.writes.conflicts.keys.add(key)


def _trigger(
    tr: EmbeddedTransaction, begin: bytes, end: bytes, value: bytes | None, known: bool
) -> None:
    """A write of this transaction that changes a watched value is a change like any other."""
    changed = [
        watch
        for watch in tr.watching
        if begin <= watch.key < end and (not known or watch.value_seen != value)
    ]
    tr.watching = [watch for watch in tr.watching if watch not in changed]
    for watch in changed:
        watch.complete()


def fdb_transaction_atomic_op(
    handle: Handle, key: bytes, key_length: int, operand: bytes, operand_length: int, op: int
) -> None:
    """Apply an atomic mutation to a key."""
    tr = live[handle]
    with tr.lock:
        if (
            not tr.plain
            or op not in atomic.PLAIN_TYPES
            or key >= SYSTEM
            or key_length > KEY_LIMIT
            or operand_length > VALUE_LIMIT
        ):
            # 0 is how a set is noted, and no atomic mutation.
            _mutate(tr, op or -1, key, operand)
            return
        tr.approximate += 3 * key_length + operand_length + _WRITE_BYTES
        tr.writes.mutate(op, key, operand, True)
        if tr.watching:
            _trigger(tr, key, key + b"\0", None, known=False)


def _mutate(tr: EmbeddedTransaction, op: int, key: bytes, operand: bytes) -> None:
    """Set a key or apply an atomic mutation in any case."""
    try:
        if tr.deferred:
            return
        conflict = _takes_conflict(tr)
        tr.check_use()
        if key == METADATA_VERSION:
            if op != atomic.SET_VERSIONSTAMPED_VALUE or operand != _METADATA_OPERAND:
                raise Fault(codes.INVALID_OPERATION)
        elif key >= tr.write_limit:
            raise Fault(codes.OUTSIDE_LEGAL_RANGE)
        if op != SET and op not in atomic.ATOMIC_TYPES:
            raise Fault(codes.INVALID_MUTATION)
        if len(key) > KEY_LIMIT and len(key) > write_key_limit(key, tr.options.raw_access):
            raise Fault(codes.KEY_TOO_LARGE)
        if len(operand) > VALUE_LIMIT:
            raise Fault(codes.VALUE_TOO_LARGE)
        op = atomic.modern(op)
        if op == atomic.SET_VERSIONSTAMPED_KEY:
            key = _stamped_key(tr, key)
            conflict = False
        elif op == atomic.SET_VERSIONSTAMPED_VALUE:
            atomic.stamp_offset(operand)
        tr.approximate += len(key) + len(operand) + MUTATION_BYTES
        if conflict:
            tr.approximate += RANGE_BYTES + 2 * len(key) + 1
        if tr.options.read_your_writes_disabled:
            _write_directly(tr, op, key, operand, conflict)
            return
        tr.writes.mutate(op, key, operand, conflict)
        if tr.watching:
            _trigger(tr, key, key + b"\0", operand, known=op == SET)
    except Fault as error:
        tr.defer(error)


def _stamped_key(tr: EmbeddedTransaction, key: bytes) -> bytes:
    """Note a versionstamped key: nothing that it may become can be read back."""
    version = tr.read_version or 0
    begin, end = atomic.stamp_range(key, version, tr.read_limit)
    if not tr.stamped_keys:
        tr.stamped_keys = []
    tr.stamped_keys.append(key)
    if not tr.options.read_your_writes_disabled and begin < end:
        tr.writes.make_unreadable(begin, end)
    offset = atomic.stamp_offset(key)
    after = offset + atomic.STAMP_BYTES
    return key[:offset] + atomic.stamp(version, 0) + key[after:]


def fdb_transaction_clear(handle: Handle, key: bytes, length: int) -> None:
    """Clear a key."""
    tr = live[handle]
    with tr.lock:
        if not tr.plain or key >= SYSTEM or length > KEY_LIMIT:
            _clear(tr, key)
            return
        tr.approximate += 2 * (2 * length + 1 + RANGE_BYTES)
        tr.writes.clear(key, key + b"\0", True)
        if tr.watching:
            _trigger(tr, key, key + b"\0", None, known=True)


def _clear(tr: EmbeddedTransaction, key: bytes) -> None:
    """Clear a key in any case."""
    try:
        if tr.deferred:
            return
        conflict = _takes_conflict(tr)
        tr.check_use()
        if key.startswith(SPECIAL):
            special_keys.write(tr, key)
            return
        if key >= tr.write_limit:
            raise Fault(codes.OUTSIDE_LEGAL_RANGE)
        if len(key) > longest(key):
            return
        if tr.options.read_your_writes_disabled:
            _write_directly(tr, atomic.CLEAR_RANGE, key, None, conflict)
            return
        tr.approximate += (2 * len(key) + 1 + RANGE_BYTES) * (2 if conflict else 1)
        tr.writes.clear(key, key + b"\0", conflict)
        if tr.watching:
            _trigger(tr, key, key + b"\0", None, known=True)
    except Fault as error:
        tr.defer(error)


def fdb_transaction_clear_range(
    handle: Handle, begin: bytes, begin_length: int, end: bytes, end_length: int
) -> None:
    """Clear a range."""
    tr = live[handle]
    with tr.lock:
        try:
            if tr.deferred:
                return
            if begin > end:
                raise Fault(codes.INVERTED_RANGE)
            conflict = _takes_conflict(tr)
            tr.check_use()
            if begin.startswith(SPECIAL) and end.startswith(SPECIAL):
                special_keys.write(tr, begin)
                return
            limit = tr.write_limit
            if begin > limit or end > limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            size = begin_length + end_length
            tr.approximate += size + MUTATION_BYTES
            if conflict:
                tr.approximate += RANGE_BYTES + size
            begin, end = cut(begin), cut(end)
            if begin >= end:
                return
            if tr.options.read_your_writes_disabled:
                _write_directly(tr, atomic.CLEAR_RANGE, begin, end, conflict)
                return
            tr.writes.clear(begin, end, conflict)
            if tr.watching:
                _trigger(tr, begin, end, None, known=True)
        except Fault as error:
            tr.defer(error)


def fdb_transaction_add_conflict_range(
    handle: Handle, begin: bytes, begin_length: int, end: bytes, end_length: int, kind: int
) -> int:
    """Add a read (0) or write (1) conflict range; reports an error code for what is none."""
    if begin > end:
        return reported(fdb_transaction_add_conflict_range, codes.INVERTED_RANGE)
    if kind not in (0, 1):
        return reported(fdb_transaction_add_conflict_range, codes.INVALID_OPERATION)
    tr = live[handle]
    with tr.lock:
        try:
            if kind == 0 and end == begin + b"\0" and tr.plain and end_length <= KEY_LIMIT:
                # The one key that a program has read, usually.
                writes = tr.writes
                if end <= SYSTEM and begin not in writes.stacks and not writes.cleared.begins:
                    tr.approximate += begin_length + end_length + RANGE_BYTES
                    tr.reads.keys.add(begin)
                    return 0
            if not tr.plain:
                if tr.deferred:
                    return 0
                tr.check_use()
            if end > SYSTEM:
                limit = tr.write_limit if kind else tr.read_limit
                metadata = (METADATA_VERSION, METADATA_VERSION + b"\0")
                if (begin > limit or end > limit) and (kind or (begin, end) != metadata):
                    raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            if begin_length > KEY_LIMIT or end_length > KEY_LIMIT:
                begin, end = cut(begin), cut(end)
            if begin >= end:
                return 0
            if kind:
                tr.approximate += len(begin) + len(end) + RANGE_BYTES
                tr.writes.conflicts.add_range(begin, end)
            else:
                if tr.options.read_your_writes_disabled:
                    # Reads are not counted then, but this is.
                    tr.approximate += len(begin) + len(end) + RANGE_BYTES
                tr.note_read_range(begin, end)
        except Fault as error:
            tr.defer(error)
    return 0


def fdb_transaction_get_approximate_size(handle: Handle) -> Future:
    """How large the commit will be, roughly."""
    tr = live[handle]
    with tr.lock:
        if tr.deferred:
            return failed(tr.deferred)
        return Future(tr.approximate)
