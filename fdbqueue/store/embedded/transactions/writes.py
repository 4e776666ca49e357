"""The writes of a transaction, and the conflict ranges that a program adds itself.

A write cannot fail: what is wrong with one is reported by the next call that can.
"""

from __future__ import annotations

from .. import codes
from ..codes import Fault
from ..futures import Future, failed
from . import atomic, special_keys
from .limits import (
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
from .transaction import Transaction

_METADATA_OPERAND = b"\0" * 14


def set_key(tr: Transaction, key: bytes, value: bytes) -> None:
    """Set a key."""
    with tr.lock:
        try:
            if tr.guarded and tr.deferred:
                return
            if key >= SYSTEM:
                if key == METADATA_VERSION:
                    raise Fault(codes.INVALID_OPERATION)
                if key.startswith(SPECIAL):
                    special_keys.write(tr, key)
                    return
            conflict = _takes_conflict(tr)
            if tr.guarded:
                tr.check_use()
            if key >= SYSTEM and key >= tr.write_limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            size = len(key)
            tr.approximate += size + len(value) + MUTATION_BYTES
            if conflict:
                tr.approximate += RANGE_BYTES + 2 * size + 1
            _require_size(tr, key, value)
            if tr.options.read_your_writes_disabled:
                _write_directly(tr, atomic.SET, key, value, conflict)
                return
            tr.writes.mutate(atomic.SET, key, value, conflict)
            if tr.watching:
                _trigger(tr, key, key + b"\0", value, known=True)
        except Fault as error:
            tr.defer(error)


def _require_size(tr: Transaction, key: bytes, value: bytes) -> None:
    if len(key) > KEY_LIMIT and len(key) > write_key_limit(key, tr.options.raw_access):
        raise Fault(codes.KEY_TOO_LARGE)
    if len(value) > atomic.VALUE_LIMIT:
        raise Fault(codes.VALUE_TOO_LARGE)


def _takes_conflict(tr: Transaction) -> bool:
    """Whether the present write conflicts; the option against it holds for one write."""
    if not tr.options.next_write_no_conflict:
        return True
    tr.options = tr.options.copy()
    tr.options.next_write_no_conflict = False
    return False


def _write_directly(
    tr: Transaction, op: int, key: bytes, value: bytes | None, conflict: bool
) -> None:
    if not tr.direct:
        tr.direct = []
    tr.direct.append((op, key, value))
    if conflict:
        if op == atomic.CLEAR_RANGE and value is not None:
            tr.writes.conflicts.add_range(key, value)
        else:
            tr.writes.conflicts.keys.add(key)


def _trigger(tr: Transaction, begin: bytes, end: bytes, value: bytes | None, known: bool) -> None:
    """A write of this transaction that changes a watched value is a change like any other."""
    changed = [
        watch
        for watch in tr.watching
        if begin <= watch.key < end and (not known or watch.value_seen != value)
    ]
    tr.watching = [watch for watch in tr.watching if watch not in changed]
    for watch in changed:
        watch.complete()


def atomic_op(tr: Transaction, key: bytes, operand: bytes, op: int) -> None:
    """Apply an atomic mutation to a key."""
    with tr.lock:
        try:
            if tr.guarded and tr.deferred:
                return
            conflict = _takes_conflict(tr)
            if tr.guarded:
                tr.check_use()
            if key == METADATA_VERSION:
                if op != atomic.SET_VERSIONSTAMPED_VALUE or operand != _METADATA_OPERAND:
                    raise Fault(codes.INVALID_OPERATION)
            elif key >= tr.write_limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            if op not in atomic.ATOMIC_TYPES:
                raise Fault(codes.INVALID_MUTATION)
            _require_size(tr, key, operand)
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
                _trigger(tr, key, key + b"\0", None, known=False)
        except Fault as error:
            tr.defer(error)


def _stamped_key(tr: Transaction, key: bytes) -> bytes:
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


def clear(tr: Transaction, key: bytes) -> None:
    """Clear a key."""
    with tr.lock:
        try:
            if tr.guarded and tr.deferred:
                return
            conflict = _takes_conflict(tr)
            if tr.guarded:
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
            size = 2 * len(key) + 1
            tr.approximate += (size + RANGE_BYTES) * (2 if conflict else 1)
            tr.writes.clear(key, key + b"\0", conflict)
            if tr.watching:
                _trigger(tr, key, key + b"\0", None, known=True)
        except Fault as error:
            tr.defer(error)


def clear_range(tr: Transaction, begin: bytes, end: bytes) -> None:
    """Clear a range."""
    with tr.lock:
        try:
            if tr.guarded and tr.deferred:
                return
            if begin > end:
                raise Fault(codes.INVERTED_RANGE)
            conflict = _takes_conflict(tr)
            if tr.guarded:
                tr.check_use()
            if begin.startswith(SPECIAL) and end.startswith(SPECIAL):
                special_keys.write(tr, begin)
                return
            limit = tr.write_limit
            if begin > limit or end > limit:
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
            size = len(begin) + len(end)
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


def add_conflict_range(tr: Transaction, begin: bytes, end: bytes, kind: int) -> int:
    """Add a read (0) or write (1) conflict range; an error code for what cannot be a range."""
    if begin > end:
        return codes.INVERTED_RANGE
    if kind not in (0, 1):
        return codes.INVALID_OPERATION
    with tr.lock:
        try:
            if tr.guarded:
                if tr.deferred:
                    return 0
                tr.check_use()
            limit = tr.write_limit if kind else tr.read_limit
            metadata = (METADATA_VERSION, METADATA_VERSION + b"\0")
            if (begin > limit or end > limit) and (kind or (begin, end) != metadata):
                raise Fault(codes.OUTSIDE_LEGAL_RANGE)
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


def get_approximate_size(tr: Transaction) -> Future:
    """How large the commit will be, roughly."""
    with tr.lock:
        if tr.deferred:
            return failed(tr.deferred)
        return Future(tr.approximate)
