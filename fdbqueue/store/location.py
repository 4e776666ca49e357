"""Stores by name: which engine a name means, and which store is meant where none is given.

Nothing here loads the bindings. Files are only looked at, and none is created.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from enum import Enum

from msgspec import Struct

from ..errors import NotAStore, StoreError, StoreNotFound
from . import embedded

EMBEDDED_PREFIX = "embedded:"
SQLITE = b"SQLite format 3\0"
_CLUSTER_FILE = re.compile(rb"^\s*\w+:\w+@\S+", re.MULTILINE)


class Engine(Enum):
    """What lies under the bindings."""

    FOUNDATIONDB = "FoundationDB"
    EMBEDDED = "the embedded engine"


class Store(Struct, frozen=True):
    """A store by name: the engine and its file (None: FoundationDB's own default)."""

    engine: Engine
    path: str | None

    def __str__(self) -> str:
        if self.engine is Engine.EMBEDDED:
            return f"embedded store {self.path}"
        return f"FoundationDB cluster of {self.path or 'the default cluster file'}"


def default_cluster_file() -> str:
    """The cluster file that FoundationDB's client uses when none is named."""
    if sys.platform == "darwin":
        return "/usr/local/etc/foundationdb/fdb.cluster"
    return "/etc/foundationdb/fdb.cluster"


def default_store() -> str:
    """The embedded store that is used when nothing else is named."""
    if sys.platform == "darwin":
        data = os.path.expanduser("~/Library/Application Support")
    else:
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "fdbqueue", "store.fdbq")


def locate(name: str | os.PathLike[str]) -> Store:
    """The store that ``name`` means: ``embedded:PATH``, an embedded store, or a cluster file.

    Raises ``NotAStore`` for a file that is neither, and ``StoreNotFound`` for a cluster file that
    does not exist.
    """
    text = os.fsdecode(name)
    if "\0" in text:
        raise NotAStore(store=repr(text), problem="no path has such a character")
    if text.startswith(EMBEDDED_PREFIX):
        text = text.removeprefix(EMBEDDED_PREFIX)
        if not text:
            raise NotAStore(store=EMBEDDED_PREFIX, problem="a path must follow the colon")
        _refuse_url(text)
        return Store(Engine.EMBEDDED, _absolute(text))
    if not text:
        raise NotAStore(store="''", problem="it names no file")
    _refuse_url(text)
    path = _absolute(text)
    try:
        head = embedded.first_bytes(path, 4096)
    except FileNotFoundError:
        # A new embedded store would hide that the path is misspelt.
        if path.endswith(".cluster"):
            raise StoreNotFound(store=path, problem="a cluster file must exist") from None
        return Store(Engine.EMBEDDED, path)
    except IsADirectoryError:
        raise NotAStore(store=path, problem="it is a directory; name a file in it") from None
    except OSError as error:
        raise StoreError(store=path, problem=error.strerror or str(error)) from None
    if not head or head.startswith(SQLITE):
        return Store(Engine.EMBEDDED, path)
    if _CLUSTER_FILE.search(head):
        return Store(Engine.FOUNDATIONDB, path)
    raise NotAStore(store=path, problem="it is neither an embedded store nor a cluster file")


def _refuse_url(text: str) -> None:
    if scheme := re.match(r"\w+://", text):
        raise NotAStore(store=text, problem=f"give the path of a file, without {scheme[0]}")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def choose() -> Store:
    """The store that rules 2 to 4 of ``binding`` name. Raises as ``locate``, and ``StoreError``."""
    named = os.environ.get("FDBQUEUE_STORE")
    if named:
        return locate(named)
    cluster_file = os.environ.get("FDB_CLUSTER_FILE")
    # Also a link to nowhere: it was meant as a cluster file, so an embedded store is not what is
    # wanted.
    if cluster_file or os.path.lexists(default_cluster_file()):
        _check_cluster_file(cluster_file or default_cluster_file())
        return Store(Engine.FOUNDATIONDB, cluster_file)
    return Store(Engine.EMBEDDED, default_store())


def _check_cluster_file(path: str) -> None:
    """Raise where FoundationDB's client could not use a cluster file."""
    try:
        head = embedded.first_bytes(path, 4096)
    except FileNotFoundError:
        raise StoreNotFound(store=path, problem="a cluster file must exist") from None
    except OSError as error:
        raise StoreError(store=path, problem=error.strerror or str(error)) from None
    if head is None or not _CLUSTER_FILE.search(head):
        raise NotAStore(store=path, problem="it is no cluster file; FDBQUEUE_STORE names others")


def is_new(store: Store, *, create: bool) -> bool:
    """Whether an embedded store has yet to be made.

    Raises ``StoreNotFound`` where it must not be made: unless ``create``, or because its folder is
    not there, but for that of the user's embedded store. Raises ``NotAStore`` for an empty file.
    """
    assert store.path is not None
    try:
        size = os.stat(store.path).st_size
    except (FileNotFoundError, NotADirectoryError):
        problem = "create a store with fdbq queue create"
        if create:
            problem = "a store is created only in a folder that exists"
            if store.path == default_store() or os.path.isdir(os.path.dirname(store.path)):
                return True
        raise StoreNotFound(store=store.path, problem=problem + near(store)) from None
    except OSError:
        return False  # what is wrong with it is told by who opens it
    if not size and not create:
        raise NotAStore(store=store.path, problem="the file is empty")
    return False


def near(store: Store) -> str:
    """Which store or folder a path that does not exist may mean, to be put behind a sentence."""
    parent, missing = os.path.split(store.path or "")
    is_meant: Callable[[str], bool] = _is_embedded
    while not os.path.isdir(parent):
        parent, missing = os.path.split(parent)
        is_meant = os.path.isdir
    try:
        names = sorted({*os.listdir(parent)} - {missing})
    except OSError:
        return ""
    found = [os.path.join(parent, name) for name in get_close_matches(missing, names)]
    return next((f" (did you mean {path}?)" for path in found if is_meant(path)), "")


def _is_embedded(path: str) -> bool:
    try:
        return (embedded.first_bytes(path, 16) or b"").startswith(SQLITE)
    except OSError:
        return False
