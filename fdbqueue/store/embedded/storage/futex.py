"""Sleep until another process changes a number in shared memory: a futex of Linux.

Elsewhere there is none, and who waits looks again and again. See futex(2).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import time

_SYSCALLS = {"x86_64": 202, "aarch64": 98}
_WAIT_BITSET, _WAKE_BITSET = 9, 10
_EVERYBODY = 0xFFFFFFFF
_ALL = 0x7FFFFFFF


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Futex:
    """The low half of a number in shared memory, as what processes sleep on."""

    def __init__(self, shared: mmap.mmap, offset: int, syscall: int) -> None:
        # Once the memory is unmapped the system refuses to sleep on it; that does no harm.
        self._address = ctypes.addressof(ctypes.c_uint32.from_buffer(shared, offset))
        self._call = ctypes.CDLL(None).syscall
        self._call.argtypes = (
            *(ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32),
            *(ctypes.POINTER(_Timespec), ctypes.c_void_p, ctypes.c_uint32),
        )
        self._call.restype = ctypes.c_long
        self._number = syscall
        # Processes that share a bit wake each other for nothing.
        self._own = 1 << os.getpid() % 32

    def wait(self, value: int, seconds: float) -> None:
        """Sleep until woken, for so many seconds at most; not if the number is another already."""
        until = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(seconds * 1e9)
        deadline = _Timespec(*divmod(until, 1_000_000_000))
        low = value & 0xFFFFFFFF
        self._call(self._number, self._address, _WAIT_BITSET, low, deadline, None, self._own)

    def wake(self) -> None:
        """Wake who sleeps, in all processes."""
        self._call(self._number, self._address, _WAKE_BITSET, _ALL, None, None, _EVERYBODY)

    def wake_own(self) -> bool:
        """Wake who sleeps in this process; whether somebody did. Who is about to may miss it."""
        woken = self._call(self._number, self._address, _WAKE_BITSET, _ALL, None, None, self._own)
        return bool(woken > 0)


def futex(shared: mmap.mmap, offset: int) -> Futex | None:
    """A futex at a place in shared memory, where the system has them."""
    syscall = _SYSCALLS.get(platform.machine())
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or syscall is None:
        return None
    return Futex(shared, offset, syscall)
