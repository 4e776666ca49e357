"""The special keys, those under \\xff\\xff: facts about a transaction and about the store."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ... import world
from ..codes import (
    CROSS_MODULE_READ,
    LIMITS_INVALID,
    NO_MODULE,
    NO_WRITE_MODULE,
    SPECIAL_WRITE_DISABLED,
    TENANTS_DISABLED,
    Fault,
)
from ..storage.rows import Row
from ..storage.versions import VERSIONS_PER_SECOND
from . import atomic, lifecycle, read_view
from .range_reads import KeySelector
from .ranges import Range
from .transaction import EmbeddedTransaction

TIME_KEEPER = b"\xff\x02/timeKeeper/map/"
_PREFIX = b"\xff\xff"
_READ_CONFLICTS = _PREFIX + b"/transaction/read_conflict_range/"
_WRITE_CONFLICTS = _PREFIX + b"/transaction/write_conflict_range/"
_CONFLICTING = _PREFIX + b"/transaction/conflicting_keys/"
_TENANTS = _PREFIX + b"/management/tenant/map/"
# The modules of a cluster: a range is read within one of them.
_MODULES = tuple(
    _PREFIX + name
    for name in (
        b"/actor_lineage/",
        b"/actor_profiler_conf/",
        b"/cluster_file_path",
        b"/cluster_id",
        b"/configuration/",
        b"/connection_string",
        b"/error_message",
        b"/fault_tolerance_metrics_json",
        b"/globalconfig/",
        b"/management/",
        b"/metrics/",
        b"/status/json",
        b"/tracing/",
        b"/transaction/",
        b"/worker_interfaces/",
    )
)


def _end(module: bytes) -> bytes:
    """The first key after all that start as the module does."""
    return module[:-1] + bytes([module[-1] + 1])


def get(transaction: EmbeddedTransaction, key: bytes) -> bytes | None:
    """The value of a special key.

    A failed transaction answers from its own state only.
    """
    if transaction.deferred:
        raise Fault(transaction.deferred)
    path = transaction.database.store.file.path
    if key == _PREFIX + b"/status/json":
        transaction.check_fault()
        status = {
            "client": {"database_status": {"available": True, "healthy": True}},
            "cluster": {"configuration": {"storage_engine": "embedded"}},
        }
        return json.dumps(status, separators=(",", ":")).encode()
    if key in (_PREFIX + b"/cluster_file_path", _PREFIX + b"/connection_string"):
        return path.encode()
    if not any(key.startswith(module) for module in _MODULES):
        raise Fault(NO_MODULE)
    for row_key, value in _rows(transaction, key):
        if row_key == key:
            return value
    return None


def get_range(
    transaction: EmbeddedTransaction,
    begin: KeySelector,
    end: KeySelector,
    limit: int,
    reverse: bool,
) -> list[Row]:
    """The special keys in a range within one module."""
    if transaction.deferred:
        raise Fault(transaction.deferred)
    if limit < -1:
        raise Fault(LIMITS_INVALID)
    if begin.offset >= end.offset and begin.key >= end.key:
        return []
    if not transaction.options.special_keys_relaxed:
        module = next((module for module in _MODULES if begin.key.startswith(module)), None)
        if module is None:
            crosses = any(begin.key < module < end.key for module in _MODULES)
            raise Fault(CROSS_MODULE_READ if crosses else NO_MODULE)
        if end.key > _end(module):
            raise Fault(CROSS_MODULE_READ)
    rows = [row for row in _rows(transaction, begin.key) if begin.key <= row[0] < end.key]
    if reverse:
        rows.reverse()
    return rows if limit <= 0 else rows[:limit]


def time_kept(transaction: EmbeddedTransaction, begin: KeySelector, end: KeySelector) -> list[Row]:
    """The wall clock of the machine and its version, as a cluster notes them every ten seconds.

    A single note, of the second that has just begun. It is read from the system itself: a program
    may replace what Python's ``time`` says.
    """
    read_view.current(transaction)
    version = transaction.read_version or 0
    seconds, rest = divmod(world.store_time_ns() // 1000, VERSIONS_PER_SECOND)
    key = TIME_KEEPER + _integer(seconds)
    return [(key, _integer(max(0, version - rest)))] if begin.key <= key < end.key else []


def _integer(value: int) -> bytes:
    """A natural number in the tuple layer's encoding."""
    size = (value.bit_length() + 7) // 8
    return bytes([0x14 + size]) + value.to_bytes(size, "big")


def write(transaction: EmbeddedTransaction, key: bytes) -> None:
    """Refuse to write a special key, with the reason that a cluster without tenants would give."""
    if not transaction.options.special_keys_writable:
        raise Fault(SPECIAL_WRITE_DISABLED)
    if not key.startswith(_TENANTS):
        raise Fault(NO_WRITE_MODULE)
    # A cluster finds out when it commits.
    transaction.commit_error = TENANTS_DISABLED


def _rows(transaction: EmbeddedTransaction, key: bytes) -> list[Row]:
    if key.startswith(_READ_CONFLICTS):
        return _boundaries(_READ_CONFLICTS, list(transaction.reads.coalesced()))
    if key.startswith(_WRITE_CONFLICTS):
        return _boundaries(_WRITE_CONFLICTS, _write_conflicts(transaction))
    if key.startswith(_CONFLICTING):
        return _boundaries(_CONFLICTING, transaction.conflicting)
    return []


def _write_conflicts(transaction: EmbeddedTransaction) -> list[Range]:
    """The ranges that a transaction writes, versionstamped keys as ranges until it is committed."""
    written = transaction.writes.conflicts.coalesced()
    for key in transaction.stamped_keys:
        if transaction.committed:
            final = atomic.stamped(key, lifecycle.stamp(transaction))
            written.add(final, final + b"\0")
        else:
            version = transaction.read_version or 0
            written.add(*atomic.stamp_range(key, version, transaction.read_limit))
    return list(written)


def _boundaries(prefix: bytes, ranges: Sequence[Range]) -> list[Row]:
    rows: list[Row] = []
    for begin, end in ranges:
        rows.append((prefix + begin, b"1"))
        rows.append((prefix + end, b"0"))
    return rows
