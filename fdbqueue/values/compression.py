"""Compression of payloads, by name. Decompression never exceeds the stored size."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import CorruptData, MissingPackage

COMPRESSED_FROM = 10_000
"""The smallest payload that is compressed: smaller ones gain too little."""
_ZSTD_WINDOW = 1 << 24
"""The most bytes of history that a zstd frame may ask for; no payload needs more."""


def compress(name: str, data: bytes) -> bytes:
    """``data`` compressed; raises ``MissingPackage``."""
    return _PACKERS[name](data)


def decompress(name: str, data: bytes, size: int) -> bytes:
    """The data that ``compress`` was given; ``size`` bytes, and never more, whatever the data says.

    Raises ``CorruptData``, ``MissingPackage``.
    """
    what = "a compressed payload"
    if name not in _UNPACKERS:
        raise CorruptData(what=what, problem=f"the compression {name!r} is unknown")
    try:
        unpacked = _UNPACKERS[name](data, size + 1)
    except MissingPackage:
        raise
    except Exception as error:  # zlib.error and zstandard.ZstdError have no common root
        raise CorruptData(what=what, problem=str(error)) from None
    if len(unpacked) != size:
        more = "more" if len(unpacked) > size else "less"
        raise CorruptData(what=what, problem=f"it unpacks to {more} than its {size:,} bytes")
    return unpacked


def require(name: str) -> None:
    """Raises ``MissingPackage`` if this process does not have the compression."""
    if name == "zstd":
        _zstd()


def _zstd() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise MissingPackage(
            purpose="compression 'zstd'", package="zstandard", extra="zstd"
        ) from None


def _zstd_unpack(data: bytes, limit: int) -> bytes:
    decompressor = _zstd().ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return bytes(decompressor.stream_reader(data).read(limit))


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "zstd": lambda data: bytes(_zstd().ZstdCompressor().compress(data)),
}
_UNPACKERS: dict[str, Callable[[bytes, int], bytes]] = {
    "zlib": lambda data, limit: zlib.decompressobj().decompress(data, limit),
    "zstd": _zstd_unpack,
}
