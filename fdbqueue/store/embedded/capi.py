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
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from .. import world
from . import codes
from .codes import Fault
from .futures import RELEASED, Future, failed, reported, require_no_wait
from .options import KNOWN_TRANSACTION_OPTIONS
from .storage.database import Database, open_store
from .transactions import lifecycle, read_view, reads, writes
from .transactions.transaction import Handle, Transaction, live

LATEST_API_VERSION = 730
_LATEST_BINDINGS = 800
"""The latest API version of bindings that the engine can stand below."""
_OLDEST_API_VERSION = 13
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
        self._stopped = world.Event()
        self._network_set_up = False
        numbers = itertools.count(1)
        databases: dict[int, Database] = {}
        tenants: dict[int, Tenant] = {}

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
            if header > _LATEST_BINDINGS or not (
                _OLDEST_API_VERSION <= runtime <= LATEST_API_VERSION
            ):
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
                return reported(fdb_setup_network, codes.NETWORK_ALREADY_SETUP)
            self._network_set_up = True
            return 0

        def fdb_run_network() -> int:
            if not self._network_set_up:
                return reported(fdb_run_network, codes.NETWORK_NOT_SETUP)
            self._stopped.wait()
            return 0

        def fdb_stop_network() -> int:
            if not self._network_set_up:
                return reported(fdb_stop_network, codes.NETWORK_NOT_SETUP)
            self._stopped.set()
            return 0

        # Databases and tenants

        def fdb_create_database(path: bytes | None, out: Any) -> int:
            if path is None:
                return reported(fdb_create_database, 1515)
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
                return reported(fdb_database_set_option, error.code)
            return 0

        def fdb_database_create_transaction(handle: Handle, out: Any) -> int:
            number = next(numbers)
            live[number] = Transaction(databases[handle if type(handle) is int else handle.value])
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

        def fdb_transaction_set_option(
            handle: Handle, option: int, value: bytes | None, length: int
        ) -> int:
            if option not in KNOWN_TRANSACTION_OPTIONS:
                return reported(fdb_transaction_set_option, codes.INVALID_OPTION)
            live[handle].set_option(option, None if value is None else value[:length])
            return 0

        def fdb_tenant_destroy(handle: int) -> None:
            tenants.pop(handle, None)

        def fdb_tenant_create_transaction(handle: int, out: Any) -> int:
            number = next(numbers)
            transaction = Transaction(tenants[handle].database)
            transaction.defer(Fault(codes.TENANT_NOT_FOUND))
            live[number] = transaction
            out._obj.value = number
            return 0

        def fdb_tenant_get_id(handle: int) -> Future:
            return failed(codes.TENANT_NOT_FOUND)

        # Of bindings 7.4
        def fdb_tenant_list_blobbified_ranges(handle: int, *range_and_limit: Any) -> Future:
            return failed(codes.TENANT_NOT_FOUND)

        # Futures

        def fdb_future_destroy(future: Future) -> None:
            if not future.ready:
                future.cancel()

        def fdb_future_release_memory(future: Future) -> None:
            if future.ready and future.error is None:
                future.value = future.kept = None
                future.error, future.at_hand = RELEASED, False

        def fdb_future_cancel(future: Future) -> None:
            future.cancel()

        def fdb_future_is_ready(future: Future) -> bool:
            return future.ready

        def fdb_future_block_until_ready(future: Future) -> int:
            done = world.Event()
            future.call_when_ready(lambda _: done.set())
            done.wait()
            return 0

        def fdb_future_set_callback(
            future: Future, callback: Callable[[None], object], parameter: Any
        ) -> int:
            future.call_when_ready(callback)
            return 0

        def fdb_future_get_error(future: Future) -> int:
            if future.at_hand:
                return 0
            error = future.error
            if future.frame is not None:
                require_no_wait(future)
            if error is None:
                return 0 if future.ready else reported(fdb_future_get_error, codes.FUTURE_NOT_SET)
            if isinstance(error, Fault):
                return reported(fdb_future_get_error, error.code)
            raise error

        def value_of(function: Any, future: Future) -> Any:
            """The value; an error is reported the way that the function reports errors."""
            if future.at_hand:
                return future.value
            if future.frame is not None:
                require_no_wait(future)
            try:
                return future.result()
            except Fault as error:
                reported(function, error.code)
                raise

        def fdb_future_get_int64(future: Future, out: Any) -> int:
            if future.at_hand:
                out._obj.value = future.value
            else:
                out._obj.value = value_of(fdb_future_get_int64, future)
            return 0

        def fdb_future_get_uint64(future: Future, out: Any) -> int:
            out._obj.value = value_of(fdb_future_get_uint64, future)
            return 0

        def fdb_future_get_key(future: Future, out_key: Any, out_length: Any) -> int:
            key = future.value if future.at_hand else value_of(fdb_future_get_key, future)
            _pack_pointer(out_key._obj, 0, id(key) + _BYTES_OFFSET)
            out_length._obj.value = len(key)
            return 0

        def fdb_future_get_value(
            future: Future, out_present: Any, out_value: Any, out_length: Any
        ) -> int:
            value = future.value if future.at_hand else value_of(fdb_future_get_value, future)
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
                _pack_pointer(out_rows._obj, 0, id(future.kept) + _BYTES_OFFSET)
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

        self.commit_in_background = lifecycle.commit_in_background
        named = [locals(), vars(lifecycle), vars(read_view), vars(reads), vars(writes)]
        for name, function in ChainMap(*named).items():
            if name.startswith("fdb_"):
                setattr(self, name, function)
