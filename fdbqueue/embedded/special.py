"""The special keys, those under \\xff\\xff: facts about a transaction and about the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .codes import (
    CROSS_MODULE_READ,
    NO_MODULE,
    NO_WRITE_MODULE,
    SPECIAL_WRITE_DISABLED,
    TENANTS_DISABLED,
    Fault,
)
from .ranges import Range
from .reading import Selector
from .snapshots import Row

if TYPE_CHECKING:
    from .transaction import Transaction

_PREFIX = b"\xff\xff"
_READ_CONFLICTS = _PREFIX + b"/transaction/read_conflict_range/"
_WRITE_CONFLICTS = _PREFIX + b"/transaction/write_conflict_range/"
_CONFLICTING = _PREFIX + b"/transaction/conflicting_keys/"
_TENANTS = _PREFIX + b"/management/tenant/map/"
_MODULES = (
    _READ_CONFLICTS,
    _WRITE_CONFLICTS,
    _CONFLICTING,
    _TENANTS,
    _PREFIX + b"/management/",
    _PREFIX + b"/status/json",
    _PREFIX + b"/connection_string",
    _PREFIX + b"/cluster_file_path",
)


def get(transaction: Transaction, key: bytes) -> bytes | None:
    """The value of a special key."""
    path = transaction.database.store.file.path
    if key == _PREFIX + b"/status/json":
        status = {
            "client": {"database_status": {"available": True, "healthy": True}},
            "cluster": {"configuration": {"storage_engine": "embedded"}},
        }
        return json.dumps(status).encode()
    if key in (_PREFIX + b"/cluster_file_path", _PREFIX + b"/connection_string"):
        return path.encode()
    for row_key, value in _rows(transaction, key):
        if row_key == key:
            return value
    return None


def get_range(
    transaction: Transaction, begin: Selector, end: Selector, limit: int, reverse: bool
) -> list[Row]:
    """The special keys in a range that lies within one module."""
    module = next((m for m in _MODULES if begin.key.startswith(m)), None)
    if not transaction.options.special_keys_relaxed:
        if module is None:
            raise Fault(NO_MODULE)
        if end.key > module[:-1] + bytes([module[-1] + 1]):
            raise Fault(CROSS_MODULE_READ)
    rows = [row for row in _rows(transaction, begin.key) if begin.key <= row[0] < end.key]
    if reverse:
        rows.reverse()
    return rows if limit <= 0 else rows[:limit]


def write(transaction: Transaction, key: bytes, clears: bool) -> None:
    """Refuse to write a special key, with the reason that a cluster without tenants would give.

    To clear tenants is to clear nothing; to make one fails when the transaction commits.
    """
    if not transaction.options.special_keys_writable:
        raise Fault(SPECIAL_WRITE_DISABLED)
    if not key.startswith(_TENANTS):
        raise Fault(NO_WRITE_MODULE)
    if not clears:
        transaction.fail_commit(TENANTS_DISABLED)


def _rows(transaction: Transaction, key: bytes) -> list[Row]:
    if key.startswith(_READ_CONFLICTS):
        return _boundaries(_READ_CONFLICTS, transaction.read_conflicts())
    if key.startswith(_WRITE_CONFLICTS):
        return _boundaries(_WRITE_CONFLICTS, transaction.write_conflicts())
    if key.startswith(_CONFLICTING):
        return _boundaries(_CONFLICTING, transaction.conflicting_ranges())
    return []


def _boundaries(prefix: bytes, ranges: list[Range]) -> list[Row]:
    rows: list[Row] = []
    for begin, end in ranges:
        rows.append((prefix + begin, b"1"))
        rows.append((prefix + end, b"0"))
    return rows
