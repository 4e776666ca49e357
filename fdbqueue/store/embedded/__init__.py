"""An embedded store in place of FoundationDB's client library, below the bindings.

The official `fdb` package is unmodified. `install` gives it an object with the C library's
functions, implemented here over one SQLite file that several processes and threads may use at once;
then `fdb.open(path)` opens the store at that path.

The engine is imported by `install` or on first use of a name: a process that works on a cluster
never imports it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from . import store_errors
from .open_stores import first_bytes
from .store_errors import (
    EngineError,
    NoDirectory,
    NotAStoreFile,
    NotWritable,
    OtherFormat,
    StoreCorrupt,
    StoreFailed,
    StoreFileError,
    StoreFull,
    StoreMisplaced,
)

if TYPE_CHECKING:
    from . import faults
    from .capi import Library
    from .lock_holders import lock_holder as lock_holder
    from .storage.database import OpenStore as OpenStore
    from .storage.database import close_store as close_store
    from .storage.database import open_store as open_store
    from .storage.file import check as check
    from .storage.file import damages as damages
    from .storage.file import restore_reserve as restore_reserve
    from .storage.file import use_reserve as use_reserve

__all__ = [
    "EngineError",
    "NoDirectory",
    "NotAStoreFile",
    "NotWritable",
    "OpenStore",
    "OtherFormat",
    "StoreCorrupt",
    "StoreFailed",
    "StoreFileError",
    "StoreFull",
    "StoreMisplaced",
    "check",
    "close_store",
    "damages",
    "faults",
    "first_bytes",
    "install",
    "installed",
    "lock_holder",
    "open_store",
    "restore_reserve",
    "store_errors",
    "use_reserve",
]

_LAZY = {
    "OpenStore": "storage.database",
    "check": "storage.file",
    "close_store": "storage.database",
    "damages": "storage.file",
    "lock_holder": "lock_holders",
    "open_store": "storage.database",
    "restore_reserve": "storage.file",
    "use_reserve": "storage.file",
}
_library: Library | None = None

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "faults":
            return importlib.import_module(f"{__name__}.faults")
        if name in _LAZY:
            return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def installed() -> bool:
    """Whether the bindings in this process run on the embedded engine."""
    return _library is not None


def install() -> None:
    """Load the bindings' implementation with the engine in place of the C library.

    Calling it again does nothing.

    Raises:
        EngineError: the bindings were loaded before with FoundationDB's own library.
    """
    global _library
    if _library is not None:
        return
    if "fdb.impl" in sys.modules:
        raise EngineError("the fdb bindings are loaded already, with another library")
    from . import faults
    from .capi import Library

    library = Library()
    faults.from_environment()
    real = ctypes.CDLL

    def load(name: str | None, *arguments: Any, **keywords: Any) -> Any:
        if name is not None and "fdb_c" in str(name):
            return library
        return real(name, *arguments, **keywords)

    ctypes.CDLL = load  # type: ignore[assignment,misc]
    try:
        importlib.import_module("fdb.impl")
    finally:
        ctypes.CDLL = real  # type: ignore[misc]
    _library = library
    os.register_at_fork(after_in_child=_forget_semaphores)


def _forget_semaphores() -> None:
    # The bindings wait on a semaphore per thread, which a forked child would share with its parent.
    implementation = sys.modules.get("fdb.impl")
    if implementation is not None:
        vars(implementation._thread_local_storage).clear()
