"""An embedded store that takes the place of FoundationDB's client library, below the bindings.

The official `fdb` package is used as it is. `install` makes its first import obtain an object
with the C library's functions, implemented here over one SQLite file that several processes and
threads may use at once; after that `fdb.open(path)` opens the store at that path.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from typing import Any

from . import errors, faults
from .capi import Library
from .errors import (
    EngineError,
    NewerFormat,
    NoDirectory,
    NotAStore,
    NotWritable,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
)
from .storage.database import OpenStore, close_store, look_into, open_store
from .storage.file import check

__all__ = [
    "EngineError",
    "NewerFormat",
    "NoDirectory",
    "NotAStore",
    "NotWritable",
    "OpenStore",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "check",
    "close_store",
    "errors",
    "faults",
    "install",
    "installed",
    "look_into",
    "open_store",
]

_library: Library | None = None


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
        vars(getattr(implementation, "_thread_local_storage", threading.local())).clear()
