"""The functions of FoundationDB's C library that the bindings call, as Python functions.

The bindings set `argtypes`, `restype` and `errcheck` on them and pass what they would pass to C:
bytes with their length, handles, and pointers to where results go. Handles of futures are the
future objects themselves; handles of databases and transactions are numbers, because they travel
through a `c_void_p`. A function that reports an error code raises what its `errcheck` raises.

Here are those of the library itself, its network, databases and tenants; `Library` puts all of them
together.
"""

from __future__ import annotations

import itertools
import json
from types import ModuleType
from typing import Any

from .. import world
from . import codes, future_results
from .codes import Fault
from .futures import Future, failed, reported
from .storage.database import EmbeddedDatabase, open_store
from .transaction_options import KNOWN_TRANSACTION_OPTIONS
from .transactions import lifecycle, read_view, reads, writes
from .transactions.transaction import EmbeddedTransaction, Handle, live

LATEST_API_VERSION = 730
_LATEST_BINDINGS = 800
"""The latest API version of bindings that the engine can stand below."""
_OLDEST_API_VERSION = 13
_PARTS: tuple[ModuleType, ...] = (lifecycle, read_view, reads, writes, future_results)
"""Where the other functions are."""

_numbers = itertools.count(1)
_databases: dict[int, EmbeddedDatabase] = {}


class Tenant:
    """A handle on a tenant; there are none in an embedded store, so its operations fail."""

    def __init__(self, database: EmbeddedDatabase) -> None:
        self.database = database


_tenants: dict[int, Tenant] = {}


class Network:
    """The state of the library: the API version that was chosen, 0 for none, and its network."""

    def __init__(self) -> None:
        self.version = 0
        self.set_up = False
        self.stopped = world.Event()


network = Network()


class Library:
    """What the bindings hold in place of the loaded C library."""

    def __init__(self) -> None:
        self.commit_in_background = lifecycle.commit_in_background
        for part in (globals(), *map(vars, _PARTS)):
            for name, function in part.items():
                if name.startswith("fdb_"):
                    setattr(self, name, function)


def _number_of(handle: Handle) -> int:
    """The number in a handle that may be a ctypes object or a number itself."""
    return handle if isinstance(handle, int) else int(handle.value)


def _database_of(handle: Handle) -> EmbeddedDatabase:
    return _databases[_number_of(handle)]


def fdb_select_api_version_impl(runtime: int, header: int) -> int:
    """Choose an API version, once."""
    if network.version:
        return codes.VERSION_ALREADY_SET
    if runtime > header:
        return codes.VERSION_BAD
    if header > _LATEST_BINDINGS or not (_OLDEST_API_VERSION <= runtime <= LATEST_API_VERSION):
        return codes.VERSION_UNSUPPORTED
    network.version = runtime
    return 0


def fdb_get_max_api_version() -> int:
    """The latest API version that there is."""
    return LATEST_API_VERSION


def fdb_get_error(code: int) -> bytes:
    """What an error code means."""
    # ctypes gives bytes for c_char_p, and the bindings print them as they are.
    return codes.text(code).encode()


def fdb_error_predicate(test: int, code: int) -> int:
    """Whether an error is of a kind, such as one to retry."""
    return int(codes.predicate(test, code))


def fdb_network_set_option(option: int, value: bytes | None, length: int) -> int:
    """Nothing: there is no network."""
    return 0


def fdb_setup_network() -> int:
    """Set up the network, once."""
    if network.set_up:
        return reported(fdb_setup_network, codes.NETWORK_ALREADY_SETUP)
    network.set_up = True
    return 0


def fdb_run_network() -> int:
    """Run until the network is stopped."""
    if not network.set_up:
        return reported(fdb_run_network, codes.NETWORK_NOT_SETUP)
    network.stopped.wait()
    return 0


def fdb_stop_network() -> int:
    """Let ``fdb_run_network`` return."""
    if not network.set_up:
        return reported(fdb_stop_network, codes.NETWORK_NOT_SETUP)
    network.stopped.set()
    return 0


def fdb_create_database(path: bytes | None, out: Any) -> int:
    """Open the store at a path."""
    if path is None:
        return reported(fdb_create_database, 1515)
    number = next(_numbers)
    _databases[number] = EmbeddedDatabase(open_store(path.decode()))
    out._obj.value = number
    return 0


def fdb_database_destroy(handle: Handle) -> None:
    """Forget a database; the store stays open."""
    _databases.pop(_number_of(handle), None)


def fdb_database_set_option(handle: Handle, option: int, value: bytes | None, length: int) -> int:
    """Set an option that later transactions begin with."""
    try:
        _database_of(handle).set_option(option, None if value is None else value[:length])
    except Fault as error:
        return reported(fdb_database_set_option, error.code)
    return 0


def fdb_database_create_transaction(handle: Handle, out: Any) -> int:
    """Begin a transaction."""
    number = next(_numbers)
    live[number] = EmbeddedTransaction(_databases[handle if type(handle) is int else handle.value])
    out._obj.value = number
    return 0


def fdb_database_get_client_status(handle: Handle) -> Future:
    """The state of the client, as JSON."""
    path = _database_of(handle).store.file.path
    return Future(json.dumps({"Healthy": True, "Connections": [], "Path": path}).encode())


def fdb_database_open_tenant(handle: Handle, name: bytes, length: int, out: Any) -> int:
    """A tenant, whose operations fail."""
    number = next(_numbers)
    _tenants[number] = Tenant(_database_of(handle))
    out._obj.value = number
    return 0


def fdb_transaction_set_option(
    handle: Handle, option: int, value: bytes | None, length: int
) -> int:
    """Set an option of a transaction."""
    if option not in KNOWN_TRANSACTION_OPTIONS:
        return reported(fdb_transaction_set_option, codes.INVALID_OPTION)
    live[handle].set_option(option, None if value is None else value[:length])
    return 0


def fdb_tenant_destroy(handle: int) -> None:
    """Forget a tenant."""
    _tenants.pop(handle, None)


def fdb_tenant_create_transaction(handle: int, out: Any) -> int:
    """Begin a transaction that fails."""
    number = next(_numbers)
    transaction = EmbeddedTransaction(_tenants[handle].database)
    transaction.defer(Fault(codes.TENANT_NOT_FOUND))
    live[number] = transaction
    out._obj.value = number
    return 0


def fdb_tenant_get_id(handle: int) -> Future:
    """Fails: there is no tenant."""
    return failed(codes.TENANT_NOT_FOUND)


def fdb_tenant_list_blobbified_ranges(handle: int, *range_and_limit: Any) -> Future:
    """Fails: there is no tenant. Of bindings 7.4."""
    return failed(codes.TENANT_NOT_FOUND)
