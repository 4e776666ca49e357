from __future__ import annotations

import sys
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.errors import CorruptData, MissingPackage
from fdbqueue.values.compression import compress, decompress, require

NAMES = ["zlib", "zstd"]


@given(st.sampled_from(NAMES), st.binary(max_size=2_000))
def test_what_is_compressed_comes_back(name: str, data: bytes) -> None:
    assert decompress(name, compress(name, data), len(data)) == data


@pytest.mark.parametrize(
    ("name", "bomb"),
    [
        ("zlib", zlib.compress(bytes(200_000_000), 1)),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(200_000_000))),
    ],
    ids=NAMES,
)
def test_a_bomb_is_refused_before_it_goes_off(name: str, bomb: bytes) -> None:
    assert len(bomb) < 1_000_000
    tracemalloc.start()
    with pytest.raises(CorruptData, match="more than its 1,000 bytes"):
        decompress(name, bomb, 1_000)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [4, 6, 0, 10**6])
def test_another_size_than_the_stored_one_is_refused(name: str, size: int) -> None:
    with pytest.raises(CorruptData, match=r"less|more"):
        decompress(name, compress(name, b"12345"), size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x78\x9c\x00"])
def test_what_was_never_compressed_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(CorruptData):
        decompress(name, data, 100)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(CorruptData, match="'lz77' is unknown"):
        decompress("lz77", b"", 0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress("zstd", b"12345")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    require("none")
    require("zlib")
    for attempt in (
        lambda: require("zstd"),
        lambda: compress("zstd", b""),
        lambda: decompress("zstd", packed, 5),
    ):
        with pytest.raises(MissingPackage, match=r"pip install 'fdbqueue\[zstd\]'"):
            attempt()
