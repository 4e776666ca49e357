"""The functions of FoundationDB's C library that the bindings call, as Python functions.

The bindings set `argtypes`, `restype` and `errcheck` on them and pass what they would pass to C:
bytes with their length, handles, and pointers to where results go. Handles of futures are the
future objects themselves; handles of databases and transactions are numbers, because they travel
through a `c_void_p`. A function that reports an error code raises what its `errcheck` raises.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import struct
import threading
from collections.abc import Callable
from typing import Any

from . import codes
from .codes import Fault
from .futures import Future, failed, require_no_wait
from .options import KNOWN_TRANSACTION_OPTIONS
from .storage.database import Database, open_store
from .transactions import lifecycle, read_view, reads, writes
from .transactions.range_reads import Selector
from .transactions.transaction import Transaction

Handle = Any
"""A number, or a ctypes object that holds one."""

LATEST_API_VERSION = 730
_OLDEST_API_VERSION = 13
_UNLIMITED = -1
_WANT_ALL, _ITERATOR, _EXACT, _SERIAL = -2, -1, 0, 4
_MODE_BYTES = (_UNLIMITED, 256, 1000, 4096, 80_000)
_ITERATION_BYTES = (4096, 6144, 9216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000)

_pack_pointer = struct.Struct("P").pack_into


def _measure_bytes_offset() -> int:
    probe = b"probe"
    address = ctypes.cast(ctypes.c_char_p(probe), ctypes.c_void_p).value
    assert address is not None
    return address - id(probe)


# The offset of the data in a bytes object: its address without a ctypes conversion.
_BYTES_OFFSET = _measure_bytes_offset()


def _point(reference: Any, data: bytes) -> None:
    """Point a pointer passed by reference to bytes, which must be kept alive."""
    _pack_pointer(reference._obj, 0, id(data) + _BYTES_OFFSET)


class Tenant:
    """A handle on a tenant; there are none in an embedded store, so its operations fail."""

    def __init__(self, database: Database) -> None:
        self.database = database


class Library:
    """What the bindings hold in place of the loaded C library."""

    def __init__(self) -> None:
        self._api_version = 0
        self._stopped = threading.Event()
        self._network_set_up = False
        self._network_stopped = False
        numbers = itertools.count(1)
        databases: dict[int, Database] = {}
        transactions: dict[int, Transaction] = {}
        tenants: dict[int, Tenant] = {}
        self._texts: dict[int, bytes] = {}

        def fail(function: Any, code: int) -> int:
            """Report an error code as the bindings asked for when they set `errcheck`."""
            check = getattr(function, "errcheck", None)
            if check is not None:
                check(code, function, ())
            return code

        def number_of(handle: Handle) -> int:
            """The number in a handle that may be a ctypes object or a number itself."""
            return handle if isinstance(handle, int) else int(handle.value)

        def database_of(handle: Handle) -> Database:
            return databases[number_of(handle)]

        # Library and network

        def fdb_select_api_version_impl(runtime: int, header: int) -> int:
            if self._api_version:
                return codes.VERSION_ALREADY_SET
            if runtime > header:
                return codes.VERSION_BAD
            if header > LATEST_API_VERSION or runtime < _OLDEST_API_VERSION:
                return codes.VERSION_UNSUPPORTED
            self._api_version = runtime
            return 0

        def fdb_get_max_api_version() -> int:
            return LATEST_API_VERSION

        def fdb_get_error(code: int) -> bytes:
            # ctypes gives bytes for c_char_p, and the bindings print them as they are.
            return codes.text(code).encode()

        def fdb_error_predicate(test: int, code: int) -> int:
            return int(codes.predicate(test, code))

        def fdb_network_set_option(option: int, value: bytes | None, length: int) -> int:
            return 0

        def fdb_setup_network() -> int:
            if self._network_set_up:
                return fail(fdb_setup_network, codes.NETWORK_ALREADY_SETUP)
            self._network_set_up = True
            return 0

        def fdb_run_network() -> int:
            if not self._network_set_up:
                return fail(fdb_run_network, codes.NETWORK_NOT_SETUP)
            self._stopped.wait()
            return 0

        def fdb_stop_network() -> int:
            if not self._network_set_up:
                return fail(fdb_stop_network, codes.NETWORK_NOT_SETUP)
            self._stopped.set()
            return 0

        # Databases and tenants

        def fdb_create_database(path: bytes | None, out: Any) -> int:
            if path is None:
                return fail(fdb_create_database, 1515)
            number = next(numbers)
            databases[number] = Database(open_store(path.decode()))
            out._obj.value = number
            return 0

        def fdb_database_destroy(handle: Handle) -> None:
            databases.pop(number_of(handle), None)

        def fdb_database_set_option(
            handle: Handle, option: int, value: bytes | None, length: int
        ) -> int:
            try:
                database_of(handle).set_option(option, None if value is None else value[:length])
            except Fault as error:
                return fail(fdb_database_set_option, error.code)
            return 0

        def fdb_database_create_transaction(handle: Handle, out: Any) -> int:
            number = next(numbers)
            transactions[number] = Transaction(database_of(handle))
            out._obj.value = number
            return 0

        def fdb_database_get_client_status(handle: Handle) -> Future:
            path = database_of(handle).store.file.path
            return Future(json.dumps({"Healthy": True, "Connections": [], "Path": path}).encode())

        def fdb_database_open_tenant(handle: Handle, name: bytes, length: int, out: Any) -> int:
            number = next(numbers)
            tenants[number] = Tenant(database_of(handle))
            out._obj.value = number
            return 0

        def fdb_tenant_destroy(handle: int) -> None:
            tenants.pop(handle, None)

        def fdb_tenant_create_transaction(handle: int, out: Any) -> int:
            number = next(numbers)
            transaction = Transaction(tenants[handle].database)
            transaction.defer(Fault(codes.TENANT_NOT_FOUND))
            transactions[number] = transaction
            out._obj.value = number
            return 0

        def fdb_tenant_get_id(handle: int) -> Future:
            return failed(codes.TENANT_NOT_FOUND)

        # Transactions

        def fdb_transaction_destroy(handle: int) -> None:
            transaction = transactions.pop(handle, None)
            if transaction is not None:
                lifecycle.destroy(transaction)

        def fdb_transaction_cancel(handle: int) -> None:
            lifecycle.cancel(transactions[handle])

        def fdb_transaction_reset(handle: int) -> None:
            lifecycle.reset(transactions[handle])

        def fdb_transaction_set_read_version(handle: int, version: int) -> None:
            read_view.set_read_version(transactions[handle], version)

        def fdb_transaction_get_read_version(handle: int) -> Future:
            return read_view.get_read_version(transactions[handle])

        def fdb_transaction_get(handle: int, key: bytes, length: int, snapshot: int) -> Future:
            return reads.get(transactions[handle], key, snapshot)

        def fdb_transaction_get_key(
            handle: int, key: bytes, length: int, or_equal: int, offset: int, snapshot: int
        ) -> Future:
            return reads.get_key(transactions[handle], key, or_equal, offset, snapshot)

        def fdb_transaction_get_range(
            handle: int,
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
            try:
                limit = limit or _UNLIMITED
                byte_limit = _byte_limit(limit, target_bytes or _UNLIMITED, mode, iteration)
            except Fault as error:
                return failed(error.code)
            return reads.get_range(
                transactions[handle],
                begin,
                Selector(begin + b"\0" if begin_or_equal else begin, begin_offset),
                end,
                Selector(end + b"\0" if end_or_equal else end, end_offset),
                limit,
                byte_limit,
                snapshot,
                reverse,
            )

        def fdb_transaction_get_estimated_range_size_bytes(
            handle: int, begin: bytes, begin_length: int, end: bytes, end_length: int
        ) -> Future:
            return reads.get_estimated_range_size(transactions[handle], begin, end)

        def fdb_transaction_get_range_split_points(
            handle: int,
            begin: bytes,
            begin_length: int,
            end: bytes,
            end_length: int,
            chunk: int,
        ) -> Future:
            return reads.get_range_split_points(transactions[handle], begin, end, chunk)

        def fdb_transaction_get_addresses_for_key(handle: int, key: bytes, length: int) -> Future:
            return reads.get_addresses_for_key(transactions[handle], key)

        def fdb_transaction_set_option(
            handle: int, option: int, value: bytes | None, length: int
        ) -> int:
            if option not in KNOWN_TRANSACTION_OPTIONS:
                return fail(fdb_transaction_set_option, codes.INVALID_OPTION)
            transactions[handle].set_option(option, None if value is None else value[:length])
            return 0

        def fdb_transaction_set(
            handle: int, key: bytes, key_length: int, value: bytes, value_length: int
        ) -> None:
            writes.set_key(transactions[handle], key, value)

        def fdb_transaction_atomic_op(
            handle: int, key: bytes, key_length: int, operand: bytes, operand_length: int, op: int
        ) -> None:
            writes.atomic_op(transactions[handle], key, operand, op)

        def fdb_transaction_clear(handle: int, key: bytes, length: int) -> None:
            writes.clear(transactions[handle], key)

        def fdb_transaction_clear_range(
            handle: int, begin: bytes, begin_length: int, end: bytes, end_length: int
        ) -> None:
            writes.clear_range(transactions[handle], begin, end)

        def fdb_transaction_add_conflict_range(
            handle: int, begin: bytes, begin_length: int, end: bytes, end_length: int, kind: int
        ) -> int:
            code = writes.add_conflict_range(transactions[handle], begin, end, kind)
            return fail(fdb_transaction_add_conflict_range, code) if code else 0

        def fdb_transaction_watch(handle: int, key: bytes, length: int) -> Future:
            return reads.watch(transactions[handle], key)

        def fdb_transaction_commit(handle: int) -> Future:
            return lifecycle.commit(transactions[handle])

        def fdb_transaction_get_committed_version(handle: int, out: Any) -> int:
            out._obj.value = lifecycle.get_committed_version(transactions[handle])
            return 0

        def fdb_transaction_get_approximate_size(handle: int) -> Future:
            return writes.get_approximate_size(transactions[handle])

        def fdb_transaction_get_versionstamp(handle: int) -> Future:
            return lifecycle.get_versionstamp(transactions[handle])

        def fdb_transaction_on_error(handle: int, code: int) -> Future:
            return lifecycle.on_error(transactions[handle], codes.validated(code))

        # Futures

        def fdb_future_destroy(future: Future) -> None:
            future.cancel()

        def fdb_future_release_memory(future: Future) -> None:
            future.release()

        def fdb_future_cancel(future: Future) -> None:
            future.cancel()

        def fdb_future_is_ready(future: Future) -> bool:
            return future.ready

        def fdb_future_block_until_ready(future: Future) -> int:
            done = threading.Event()
            future.call_when_ready(lambda _: done.set())
            done.wait()
            return 0

        def fdb_future_set_callback(
            future: Future, callback: Callable[[None], object], parameter: Any
        ) -> int:
            future.call_when_ready(callback)
            return 0

        def fdb_future_get_error(future: Future) -> int:
            if future.frame is not None:
                require_no_wait(future)
            error = future.error
            if error is None:
                return 0 if future.ready else fail(fdb_future_get_error, codes.FUTURE_NOT_SET)
            if isinstance(error, Fault):
                return fail(fdb_future_get_error, error.code)
            raise error

        def value_of(function: Any, future: Future) -> Any:
            """The value; an error is reported the way that the function reports errors."""
            if future.frame is not None:
                require_no_wait(future)
            try:
                return future.result()
            except Fault as error:
                fail(function, error.code)
                raise

        def fdb_future_get_int64(future: Future, out: Any) -> int:
            out._obj.value = value_of(fdb_future_get_int64, future)
            return 0

        def fdb_future_get_uint64(future: Future, out: Any) -> int:
            out._obj.value = value_of(fdb_future_get_uint64, future)
            return 0

        def fdb_future_get_key(future: Future, out_key: Any, out_length: Any) -> int:
            key = value_of(fdb_future_get_key, future)
            _point(out_key, key)
            out_length._obj.value = len(key)
            return 0

        def fdb_future_get_value(
            future: Future, out_present: Any, out_value: Any, out_length: Any
        ) -> int:
            if future.error is not None or not future.ready or future.frame is not None:
                value_of(fdb_future_get_value, future)
            value = future.value
            if value is not None:
                out_present._obj.value = 1
                _pack_pointer(out_value._obj, 0, id(value) + _BYTES_OFFSET)
                out_length._obj.value = len(value)
            return 0

        def fdb_future_get_keyvalue_array(
            future: Future, out_rows: Any, out_count: Any, out_more: Any
        ) -> int:
            rows, more = value_of(fdb_future_get_keyvalue_array, future)
            out_count._obj.value = len(rows)
            out_more._obj.value = more
            if rows:
                if future.kept is None:
                    fields: list[int] = []
                    for key, value in rows:
                        fields += (
                            id(key) + _BYTES_OFFSET,
                            len(key),
                            id(value) + _BYTES_OFFSET,
                            len(value),
                        )
                    future.kept = struct.pack("=" + "QiQi" * len(rows), *fields)
                _point(out_rows, future.kept)
            return 0

        def fdb_future_get_key_array(future: Future, out_keys: Any, out_count: Any) -> int:
            keys = value_of(fdb_future_get_key_array, future)
            fields: list[int] = []
            for key in keys:
                fields += (id(key) + _BYTES_OFFSET, len(key))
            future.kept = struct.pack("=" + "Qi" * len(keys), *fields)
            out_count._obj.value = len(keys)
            _point(out_keys, future.kept)
            return 0

        def fdb_future_get_string_array(future: Future, out_strings: Any, out_count: Any) -> int:
            strings = value_of(fdb_future_get_string_array, future)
            addresses = [id(string) + _BYTES_OFFSET for string in strings]
            future.kept = struct.pack("P" * len(strings), *addresses)
            out_count._obj.value = len(strings)
            _point(out_strings, future.kept)
            return 0

        for name, function in list(locals().items()):
            if name.startswith("fdb_"):
                setattr(self, name, function)


def _byte_limit(limit: int, target: int, mode: int, iteration: int) -> int:
    """The number of bytes that a range read aims at, from its streaming mode."""
    if limit == _UNLIMITED and target == _UNLIMITED and mode == _EXACT:
        raise Fault(codes.EXACT_WITHOUT_LIMITS)
    if mode == _ITERATOR:
        if iteration <= 0:
            raise Fault(codes.INVALID_OPERATION)
        mode_bytes = _ITERATION_BYTES[min(iteration, len(_ITERATION_BYTES)) - 1]
    elif mode == _WANT_ALL:
        mode_bytes = _MODE_BYTES[_SERIAL]
    elif 0 <= mode <= _SERIAL:
        mode_bytes = _MODE_BYTES[mode]
    else:
        raise Fault(codes.INVALID_OPERATION)
    if target == _UNLIMITED:
        return mode_bytes
    return target if mode_bytes == _UNLIMITED else min(target, mode_bytes)
