"""The hot part of the bindings, with fewer calls: transactions, and elements of tuples.

The bindings check and convert every key, value and element, which takes most of their time. Here a
transaction passes bytes on to the client library, and leaves all else to the bindings. The embedded
engine's futures are objects of Python: a result is taken from one as it is, without pointers to its
bytes. Elements are packed into the same bytes as the bindings' tuple layer packs: the three types
that hot keys have.
"""

from __future__ import annotations

from ctypes import POINTER, byref, c_byte, c_int, c_int64, c_void_p, string_at
from functools import cached_property
from typing import Any

from ..errors import CorruptData
from . import tasks, world
from .binding import DEFAULT, fdb, require
from .embedded.futures import Future
from .location import Engine

_ZERO = 0x14
_BYTES = b"\x01"
_TEXT = b"\x02"
INT_SIZES = tuple(bytes([_ZERO + size]) for size in range(9))


def pack_int(number: int) -> bytes:
    """An integer from 0 to 2**64 - 2."""
    size = (number.bit_length() + 7) >> 3
    return INT_SIZES[size] + number.to_bytes(size, "big")


def pack_bytes(data: bytes) -> bytes:
    """A byte string."""
    return _BYTES + data.replace(b"\x00", b"\x00\xff") + b"\x00"


def pack_text(text: str) -> bytes:
    """A string."""
    return _TEXT + text.encode().replace(b"\x00", b"\x00\xff") + b"\x00"


def parse_int(key: bytes, begin: int) -> tuple[int, int]:
    """The integer that begins there, and where it ends; raises ``CorruptData`` if none does."""
    size = key[begin] - _ZERO if begin < len(key) else -1
    if not 0 <= size < len(INT_SIZES):
        raise CorruptData(what="a key", problem=f"it has no integer at byte {begin}")
    end = begin + 1 + size
    return int.from_bytes(key[begin + 1 : end], "big"), end


def parse_last_bytes(key: bytes, begin: int) -> bytes:
    """The byte string that begins there and is the last element."""
    return key[begin + 1 : -1].replace(b"\x00\xff", b"\x00")


def begin(db: fdb.Database) -> fdb.Transaction:
    """A new transaction; those of tenants are the bindings' own."""
    if not isinstance(db, fdb.Database):
        require(db)
        return db.create_transaction()
    found = c_void_p()
    db.capi.fdb_database_create_transaction(db.dpointer, byref(found))
    return Transaction(found.value, db)


class _Waiting:
    """A future whose caller waits in the client library.

    In the bindings, the library's network thread calls back into Python, so that the main thread
    can handle signals while it waits. No other thread handles any.
    """

    capi: Any
    fpointer: Any

    def block_until_ready(self) -> None:
        capi, future = self.capi, self.fpointer
        if capi.fdb_future_is_ready(future):
            return
        task = tasks.current.get()
        if task is not None:
            tasks.until_ready(task, self)  # type: ignore[arg-type]
        elif world.in_main_thread():
            done = world.Event()
            self.on_ready(lambda _: done.set())  # type: ignore[attr-defined]
            # A future that has become ready meanwhile calls back in this thread, through ctypes,
            # which swallows what a signal handler raises there: then nobody sets the event.
            if not capi.fdb_future_is_ready(future):
                done.wait()
        else:
            capi.fdb_future_block_until_ready(future)


_Data: Any = POINTER(c_byte)
_READ = fdb.impl.ConflictRangeType.read
_KeyValue = fdb.impl.KeyValue


class _ReadValue:
    """The ``value`` of a ``_Value``: asks the client when it is first needed, then keeps it."""

    def __get__(self, read: Any, _: object = None) -> bytes | None:
        capi, future = read.capi, read.fpointer
        found: bytes | None
        if type(future) is Future and future.at_hand:
            found = future.value
        else:
            if not capi.fdb_future_is_ready(future):
                read.block_until_ready()
            present, data, length = c_int(), _Data(), c_int()
            capi.fdb_future_get_value(future, byref(present), byref(data), byref(length))
            found = string_at(data, length.value) if present.value else None
        read.value = found
        return found


class _ReadKey:
    """The ``value`` of a ``_Key``: asks the client when it is first needed, then keeps it."""

    def __get__(self, read: Any, _: object = None) -> bytes:
        capi, future = read.capi, read.fpointer
        found: bytes
        if type(future) is Future and future.at_hand:
            found = future.value
        else:
            if not capi.fdb_future_is_ready(future):
                read.block_until_ready()
            data, length = _Data(), c_int()
            capi.fdb_future_get_key(future, byref(data), byref(length))
            found = string_at(data, length.value)
        read.value = found
        return found


class _Value(_Waiting, fdb.impl.Value):
    """A value that is being read."""

    value = _ReadValue()

    def __init__(self, future: object) -> None:
        self.fpointer = future


class _Key(_Waiting, fdb.impl.Key):
    """A key that is being read."""

    value = _ReadKey()

    def __init__(self, future: object) -> None:
        self.fpointer = future


class _Version(_Waiting, fdb.impl.FutureInt64):
    """A read version that is being read."""

    def wait(self) -> int:
        future: Any = self.fpointer
        if type(future) is Future and future.at_hand:
            return int(future.value)
        if not self.capi.fdb_future_is_ready(self.fpointer):
            self.block_until_ready()
        version = c_int64()
        self.capi.fdb_future_get_int64(self.fpointer, byref(version))
        return version.value


class _Rows(_Waiting, fdb.impl.FutureKeyValueArray):
    """Rows that are being read."""

    def wait(self) -> Any:
        future: Any = self.fpointer
        if type(future) is Future and future.at_hand:
            rows, more = future.value
            return [_KeyValue(*row) for row in rows], len(rows), more
        return super().wait()


class _Done(_Waiting, fdb.impl.FutureVoid):
    """A commit, or the pause before the next attempt."""

    def wait(self) -> None:
        future: Any = self.fpointer
        if type(future) is Future and future.at_hand:
            return
        if not self.capi.fdb_future_is_ready(self.fpointer):
            self.block_until_ready()
        self.capi.fdb_future_get_error(self.fpointer)


class _ReadMethods(fdb.impl.TransactionRead):
    """The reads of ``Transaction``."""

    def get_read_version(self) -> fdb.Future[int]:
        return _Version(self.capi.fdb_transaction_get_read_version(self.tpointer))

    def get(self, key: bytes) -> fdb.Value:
        if type(key) is not bytes:
            return super().get(key)
        return _Value(self.capi.fdb_transaction_get(self.tpointer, key, len(key), self._snapshot))

    def get_key(self, key_selector: fdb.KeySelector) -> fdb.Key:
        key = key_selector.key
        if type(key) is not bytes:
            return super().get_key(key_selector)
        at = key_selector.or_equal, key_selector.offset
        return _Key(
            self.capi.fdb_transaction_get_key(self.tpointer, key, len(key), *at, self._snapshot)
        )

    def get_range(
        self,
        begin: bytes | fdb.KeySelector | None,
        end: bytes | fdb.KeySelector | None,
        limit: int = 0,
        reverse: bool = False,
        streaming_mode: int = fdb.StreamingMode.iterator,
    ) -> fdb.FDBRange:
        if type(begin) is type(end) is fdb.KeySelector:
            return fdb.impl.FDBRange(self, begin, end, limit, reverse, streaming_mode)
        return super().get_range(begin, end, limit, reverse, streaming_mode)

    def _get_range(
        self,
        begin: fdb.KeySelector,
        end: fdb.KeySelector,
        limit: int,
        streaming_mode: int,
        iteration: int,
        reverse: bool,
    ) -> fdb.Future[Any]:
        first, last = begin.key, end.key
        if not type(first) is type(last) is bytes:
            return super()._get_range(begin, end, limit, streaming_mode, iteration, reverse)
        return _Rows(
            self.capi.fdb_transaction_get_range(
                *(self.tpointer, first, len(first), begin.or_equal, begin.offset),
                *(last, len(last), end.or_equal, end.offset, limit, 0),
                *(streaming_mode, iteration, self._snapshot, reverse),
            )
        )


def _mutation(name: str) -> Any:
    converting = getattr(fdb.Transaction, name)
    code = fdb.impl._opts.MutationType[name][0]

    def mutate(self: Any, key: bytes, param: bytes) -> None:
        if type(key) is type(param) is bytes:
            self.capi.fdb_transaction_atomic_op(
                self.tpointer, key, len(key), param, len(param), code
            )
        else:
            converting(self, key, param)

    return mutate


class Transaction(_ReadMethods, fdb.Transaction):
    """The bindings' transaction, without the conversion of each key and value to bytes.

    That takes most of the bindings' time. What is not bytes still goes through them.
    """

    def __init__(self, pointer: object, db: fdb.Database) -> None:
        self.tpointer, self.db, self._snapshot = pointer, db, False
        self.snapshot = _ReadMethods(pointer, db, True)  # It destroys the transaction at its end.

    @cached_property
    def options(self) -> Any:  # type: ignore[override]
        return fdb.impl._TransactionOptions(self)

    def set(self, key: bytes, value: bytes) -> None:
        if type(key) is type(value) is bytes:
            self.capi.fdb_transaction_set(self.tpointer, key, len(key), value, len(value))
        else:
            super().set(key, value)

    def clear(self, key: bytes) -> None:
        if type(key) is bytes:
            self.capi.fdb_transaction_clear(self.tpointer, key, len(key))
        else:
            super().clear(key)

    add, max = _mutation("add"), _mutation("max")

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        if type(begin) is type(end) is bytes:
            self.capi.fdb_transaction_add_conflict_range(
                self.tpointer, begin, len(begin), end, len(end), _READ
            )
        else:
            super().add_read_conflict_range(begin, end)

    def add_read_conflict_key(self, key: bytes) -> None:
        if type(key) is bytes:
            size = len(key)
            self.capi.fdb_transaction_add_conflict_range(
                self.tpointer, key, size, key + b"\x00", size + 1, _READ
            )
        else:
            super().add_read_conflict_key(key)

    def commit(self) -> fdb.Future[None]:
        capi, pointer = self.capi, self.tpointer
        task = tasks.current.get() if tasks.used and DEFAULT.engine is Engine.EMBEDDED else None
        if task is not None:
            future = capi.commit_in_background(pointer)
            if future.ready:
                task.pause()  # It has not waited, and there may be others.
            return _Done(future)
        return _Done(capi.fdb_transaction_commit(pointer))

    def on_error(self, error: fdb.FDBError | int) -> fdb.Future[None]:
        code = error.code if isinstance(error, fdb.FDBError) else error
        return _Done(self.capi.fdb_transaction_on_error(self.tpointer, code))
