"""The functions of the C library on futures: their results, where the bindings look for them.

A pointer that is passed by reference is set to the bytes of a Python object, which the future keeps
alive.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from .. import world
from . import codes
from .codes import Fault
from .futures import RELEASED, Future, reported, require_no_wait

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


def fdb_future_destroy(future: Future) -> None:
    """Forget a future: whoever waits for it is told that it was cancelled."""
    if not future.ready:
        future.cancel()


def fdb_future_release_memory(future: Future) -> None:
    """Forget the result of a future."""
    # The rows of a large range are freed early this way; a future that is read later says so
    # instead of pointing at freed memory.
    if future.ready and future.error is None:
        future.value = future.kept = None
        future.error, future.at_hand = RELEASED, False


def fdb_future_cancel(future: Future) -> None:
    """Cancel a future, unless it is done."""
    future.cancel()


def fdb_future_is_ready(future: Future) -> bool:
    """Whether a future is done."""
    return future.ready


def fdb_future_block_until_ready(future: Future) -> int:
    """Wait until a future is done."""
    done = world.Event()
    future.call_when_ready(lambda _: done.set())
    done.wait()
    return 0


def fdb_future_set_callback(
    future: Future, callback: Callable[[None], object], parameter: Any
) -> int:
    """Call back when a future is done."""
    future.call_when_ready(callback)
    return 0


def fdb_future_get_error(future: Future) -> int:
    """The error of a future, or 0."""
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


def _value_of(function: Any, future: Future) -> Any:
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
    """The number in a future."""
    if future.at_hand:
        out._obj.value = future.value
    else:
        out._obj.value = _value_of(fdb_future_get_int64, future)
    return 0


def fdb_future_get_uint64(future: Future, out: Any) -> int:
    """The number in a future."""
    out._obj.value = _value_of(fdb_future_get_uint64, future)
    return 0


def fdb_future_get_key(future: Future, out_key: Any, out_length: Any) -> int:
    """The key in a future."""
    key = future.value if future.at_hand else _value_of(fdb_future_get_key, future)
    _pack_pointer(out_key._obj, 0, id(key) + _BYTES_OFFSET)
    out_length._obj.value = len(key)
    return 0


def fdb_future_get_value(future: Future, out_present: Any, out_value: Any, out_length: Any) -> int:
    """The value in a future, and whether there is one."""
    value = future.value if future.at_hand else _value_of(fdb_future_get_value, future)
    if value is not None:
        out_present._obj.value = 1
        _pack_pointer(out_value._obj, 0, id(value) + _BYTES_OFFSET)
        out_length._obj.value = len(value)
    return 0


def fdb_future_get_keyvalue_array(
    future: Future, out_rows: Any, out_count: Any, out_more: Any
) -> int:
    """The rows in a future, and whether there are more."""
    rows, more = _value_of(fdb_future_get_keyvalue_array, future)
    out_count._obj.value = len(rows)
    out_more._obj.value = more
    if rows:
        # The bindings may ask twice, and hold pointers into the first answer.
        if future.kept is None:
            fields: list[int] = []
            for key, value in rows:
                fields += (
                    id(key) + _BYTES_OFFSET,
                    len(key),
                    id(value) + _BYTES_OFFSET,
                    len(value),
                )
            # As the C header lays it out, packed to four bytes: without "=" Python would pad each
            # length.
            future.kept = struct.pack("=" + "QiQi" * len(rows), *fields)
        _pack_pointer(out_rows._obj, 0, id(future.kept) + _BYTES_OFFSET)
    return 0


def fdb_future_get_key_array(future: Future, out_keys: Any, out_count: Any) -> int:
    """The keys in a future."""
    keys = _value_of(fdb_future_get_key_array, future)
    fields: list[int] = []
    for key in keys:
        fields += (id(key) + _BYTES_OFFSET, len(key))
    future.kept = struct.pack("=" + "Qi" * len(keys), *fields)
    out_count._obj.value = len(keys)
    _point(out_keys, future.kept)
    return 0


def fdb_future_get_string_array(future: Future, out_strings: Any, out_count: Any) -> int:
    """The texts in a future."""
    strings = _value_of(fdb_future_get_string_array, future)
    addresses = [id(string) + _BYTES_OFFSET for string in strings]
    future.kept = struct.pack("P" * len(strings), *addresses)
    out_count._obj.value = len(strings)
    _point(out_strings, future.kept)
    return 0
