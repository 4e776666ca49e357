"""What the official bindings load, decided once, when this module is imported.

The rules, in this order:

1. An application that has selected an API version has chosen what the bindings load; it is
   respected from 710 on.
2. ``FDBQUEUE_STORE``: the path of an embedded store, ``embedded:PATH``, or a cluster file.
3. ``FDB_CLUSTER_FILE``, or the default cluster file if there is one: FoundationDB.
4. Otherwise an embedded store in the user's data directory.

A store that is named, or a default cluster file that is there, and cannot be used is an error:
none of these rules falls back on the next.

Everything else takes ``fdb`` from here, so that it is never used before an API version is selected.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ..errors import (
    InvalidArgument,
    NotAStore,
    StoreError,
    StoreForked,
    StoreNotFound,
    StoreUnreachable,
    UnsupportedVersion,
)
from ..values.durations import Seconds, patience
from ..values.text import visible
from . import embedded, location
from .enclosing import Inside
from .location import Engine as Engine
from .location import Store as Store
from .location import default_cluster_file as default_cluster_file
from .location import locate as locate

if TYPE_CHECKING:
    from .._stubs import fdb as fdb
else:
    import fdb as fdb

# The bindings import it at their first wait, and a signal handler that raises during an import
# leaves half a module.
importlib.import_module("multiprocessing.synchronize")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

API_VERSION = 730
OLDEST_API_VERSION = 710
DEFAULT_TIMEOUT = 10.0

log = logging.getLogger("fdbqueue")


def client_library_loads() -> bool:
    """Whether FoundationDB's own client library is there, where the bindings look for it."""
    suffix = "dylib" if sys.platform == "darwin" else "so"
    beside = os.path.join(os.path.dirname(fdb.__file__), f"libfdb_c.{suffix}")
    if _loads(beside) or _loads(f"libfdb_c.{suffix}"):
        return True
    found = ctypes.util.find_library("fdb_c")  # runs other programs, so last
    return found is not None and _loads(found)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _select() -> Store:
    """Apply the rules of this module; afterwards an API version is selected."""
    if fdb.is_api_version_selected():
        version = fdb.get_api_version()
        if version < OLDEST_API_VERSION:
            raise UnsupportedVersion(
                problem=f"the application selected FoundationDB API version {version}; fdbqueue "
                f"needs {OLDEST_API_VERSION} or later"
            )
        return _chosen_by_application()
    store = location.choose()
    if store.engine is Engine.EMBEDDED:
        try:
            embedded.install()
        except ValueError as error:  # of FDBQUEUE_FAULTS
            raise StoreError(store=store.path, problem=str(error)) from None
    elif not client_library_loads():
        raise UnsupportedVersion(
            problem=f"the {store} cannot be used: FoundationDB's client library (libfdb_c) does "
            "not load; install foundationdb-clients, or set FDBQUEUE_STORE to the path of an "
            "embedded store"
        )
    try:
        fdb.api_version(API_VERSION)
    except RuntimeError as error:
        raise UnsupportedVersion(problem=str(error)) from None
    return store


def _other_engine(store: Store, loaded: Engine) -> StoreError:
    problem = (
        f"it needs {store.engine.value}, but this process has loaded {loaded.value}, and cannot "
        f"use both: set FDBQUEUE_STORE={store.path} before you import fdbqueue"
    )
    return StoreError(store=store.path, problem=problem)


def _chosen_by_application() -> Store:
    named = os.environ.get("FDBQUEUE_STORE")
    loaded = Engine.EMBEDDED if embedded.installed() else Engine.FOUNDATIONDB
    if named:
        store = locate(named)
        if store.engine is not loaded:
            raise _other_engine(store, loaded)
        return store
    if loaded is Engine.EMBEDDED:
        return Store(loaded, location.default_store())
    return Store(loaded, os.environ.get("FDB_CLUSTER_FILE"))


DEFAULT = _select()
forked = False
"""Whether FoundationDB's client was open before a fork: it would hang."""


def _after_fork() -> None:
    global forked
    started = getattr(fdb.impl, "_network_thread", None) is not None
    forked = started and DEFAULT.engine is Engine.FOUNDATIONDB


os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Raises ``StoreForked`` where FoundationDB's client was open before a fork: it would hang."""
    if forked:
        raise StoreForked(store=DEFAULT)


FAILURES = (fdb.FDBError, embedded.StoreFileError, embedded.EngineError)
"""How a store says that it failed, whichever it is: the disk under an embedded one may be full."""


class Database(fdb.Database):
    """A database of the bindings that knows its store; what ``open`` returns."""

    store: Store

    def __repr__(self) -> str:
        return f"Database({str(self.store)!r})"


def open(
    store: str | os.PathLike[str] | None = None,
    *,
    timeout: Seconds | None = DEFAULT_TIMEOUT,
    create: bool = True,
) -> fdb.Database:
    """Open a store and make sure that it answers.

    store: an embedded store's path, ``embedded:PATH``, a cluster file, or None for what was
        decided at import (``FDBQUEUE_STORE``, the default cluster, the user's embedded store).
    timeout: seconds to wait for a cluster's first answer; None not to ask it at all.
    create: whether an embedded store that does not exist is made; else it is an error. It is made
        only in a folder that exists (but for that of the user's embedded store), which a warning
        in the log tells, and not by ``fdbq worker``.

    Which store it is is logged, and ``describe`` tells it for any database opened here.
    Raises ``StoreError``, ``StoreNotFound``, ``NotAStore``,
    ``StoreUnreachable``, ``StoreForked``, ``UnsupportedVersion``, ``InvalidArgument``.
    """
    check_process()
    limit = None if timeout is None else patience("timeout", timeout)
    chosen = DEFAULT if store is None else locate(store)
    if chosen.engine is not DEFAULT.engine:
        raise _other_engine(chosen, DEFAULT.engine)
    if chosen.engine is Engine.EMBEDDED:
        new = location.is_new(chosen, create=create and creates)
        db = _open_embedded(chosen)
        if new:
            log.warning("created a new store: %s", visible(f"{chosen.path}{location.near(chosen)}"))
    else:
        db = _open_cluster(chosen, limit)
    db.__class__ = Database  # The bindings make it, and give the same to who opens it again.
    assert isinstance(db, Database)
    db.store = chosen
    unnamed = chosen == Store(Engine.EMBEDDED, location.default_store()) and store is None
    log.info("fdbqueue uses %s%s", chosen, ", as no other is named" if unnamed else "")
    return db


creates = True
"""Whether ``open`` may make a store; in a process of ``fdbq worker`` it may not."""


def describe(db: fdb.Database) -> Store:
    """The store that a database from ``open`` is; the default one for any other."""
    return db.store if isinstance(db, Database) else DEFAULT


def close(db: fdb.Database) -> None:
    """Close an embedded store: what is still under way on it fails, and ``open`` opens it anew.

    A cluster's database stays open, as does a store that the bindings do not know to be open.
    """
    impl: Any = fdb.impl
    if DEFAULT.engine is not Engine.EMBEDDED:
        return
    # The bindings keep one database for each path; another name of the same file is another entry.
    with impl.cacheLock:
        paths = [path for path, each in impl.open_databases.items() if each is db]
    for path in paths:
        embedded.close_store(path)


def _open_embedded(store: Store) -> fdb.Database:
    assert store.path is not None
    try:
        if store.path == location.default_store():
            # Only this folder is made: the path to any other may be misspelt.
            os.makedirs(os.path.dirname(store.path), mode=0o700, exist_ok=True)
        return fdb.open(store.path)
    except OSError as error:
        problem = f"it cannot be written: {error.strerror or error}"
        raise StoreError(store=store.path, problem=problem) from None
    except embedded.OtherFormat as error:
        raise UnsupportedVersion(problem=str(error)) from None
    except embedded.NotWritable as error:
        problem = f"it cannot be written: {error}"
        raise StoreError(store=store.path, problem=problem) from None
    except embedded.NotAStoreFile as error:
        raise NotAStore(store=store.path, problem=str(error)) from None
    except (embedded.StoreFileError, ValueError) as error:  # A setting, or a name that is no UTF-8.
        raise StoreError(store=store.path, problem=str(error)) from None


def _open_cluster(store: Store, timeout: float | None) -> fdb.Database:
    shown = store.path or default_cluster_file()
    try:
        db = fdb.open(store.path)
        if timeout is not None:
            tr = db.create_transaction()
            tr.options.set_timeout(max(1, int(timeout * 1000)))
            tr.get_read_version().wait()
    except fdb.FDBError as error:
        if error.code == CLUSTER_FILE_MISSING:
            raise StoreNotFound(store=shown, problem="a cluster file must exist") from None
        if error.code == TIMED_OUT:
            raise StoreUnreachable(store=shown, seconds=timeout or 0) from None
        raise StoreError(store=shown, problem=str(error)) from None
    return db


def require(db: object, argument: str = "db") -> None:
    """Raise ``InvalidArgument`` for what is no database."""
    if not hasattr(db, "create_transaction"):
        problem = "must be a database, as fdbqueue.open returns it, or a transaction"
        raise InvalidArgument(argument=argument, value=db, problem=problem)


def transaction_place(function: Callable[..., Any], *, suspends: bool = False) -> tuple[int, str]:
    """Where a function takes its transaction: the place of the parameter, and its name.

    suspends: whether it is a coroutine function, or must not be one.

    Raises ``InvalidArgument``.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    flags = 0 if code is None else code.co_flags & _SUSPENDS
    if suspends and flags != inspect.CO_COROUTINE:
        raise InvalidArgument(
            argument="function", value=function, problem="it must be a coroutine function"
        )
    if flags and not suspends:
        raise InvalidArgument(
            argument="function",
            value=function,
            problem="a coroutine or a generator would go on when its transaction is over; "
            "fdbqueue.aio.transactional takes coroutine functions",
        )
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        # Its signature, at a tenth of what it costs to ask for it.
        names = [*function.__code__.co_varnames[: function.__code__.co_argcount]]
    else:
        parameters = inspect.signature(function).parameters.values()
        names = [each.name for each in parameters if each.kind in _POSITIONAL]
    free = [name for name in names if name not in ("self", "cls")]
    if not free:
        raise InvalidArgument(
            argument="function", value=function, problem="it needs a parameter for the transaction"
        )
    parameter = "tr" if "tr" in names else free[0]
    return names.index(parameter), parameter


@overload
def transactional(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[fdb.Transaction, P], R], /
) -> Callable[Concatenate[fdb.Transaction | fdb.Database, P], R]: ...


@overload
def transactional(
    function: Callable[Concatenate[S, fdb.Transaction, P], R], /
) -> Callable[Concatenate[S, fdb.Transaction | fdb.Database, P], R]: ...


def transactional(function: Callable[..., Any], /) -> Callable[..., Any]:
    """A decorator: the function runs in a transaction, the caller's or one of its own.

    It is ``fdb.transactional`` with types. The parameter ``tr`` is the transaction, or, where no
    parameter has that name, the first (of a method, the first after ``self``). Called with a
    transaction, the function is part of it. Called with a database, it gets a new transaction,
    which is committed when it returns, and runs again after a conflict; also when the outcome of
    the commit is unknown, so then its effect may be there twice, but for that of fdbqueue's own
    operations called with a database. Give the transaction by its place, not by its name. In it,
    to enqueue or to acknowledge with the database of the transaction raises ``InvalidArgument``.

    Raises ``InvalidArgument`` for a function without parameters, and for one that is suspended:
    a coroutine or a generator would go on when its transaction is over.
    """
    place, parameter = transaction_place(function)
    retried: Callable[..., Any] | None = None

    @wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with Inside(args[place].db):
            return function(*args, **kwargs)

    # The functions of the package give no database by mistake, and an operation calls several.
    ours = getattr(function, "__module__", "").startswith(f"{__name__.partition('.')[0]}.")
    body = function if ours else inside

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal retried
        given = args[place] if len(args) > place else None
        if isinstance(given, fdb.impl.TransactionRead):
            return body(*args, **kwargs)
        if parameter in kwargs:
            problem = "give the database or transaction by its place, not by its name"
            raise InvalidArgument(argument=parameter, value=kwargs[parameter], problem=problem)
        require(given, parameter)
        # Made at the first call with a database: most functions are only ever called with a
        # transaction.
        if retried is None:
            retried = fdb.transactional(parameter=parameter)(body)
        return retried(*args, **kwargs)

    return call


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SUSPENDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


TIMED_OUT = 1031
CLUSTER_FILE_MISSING = 1515
