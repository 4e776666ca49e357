"""Packing staged rows into values: many rows in a piece, or a large row in several pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import CorruptData, FormatTooNew
from ...schema.codec import VERSION
from ...schema.codec.sinks import StagedRow, pack_staged_row, unpack_staged_rows

PIECE_BYTES = 90_000
PIECE_ROWS = 1_000

_WHOLE = 1
_HEAD = 3


class Packer:
    """Collects rows, and yields pieces as they become full."""

    def __init__(self) -> None:
        self.rows = 0
        self._packed: list[bytes] = []
        self._size = 0

    @property
    def left(self) -> int:
        """How many rows are in no piece yet."""
        return len(self._packed)

    def add(self, row: StagedRow) -> Iterator[bytes]:
        """Add a row; yields the pieces that are full."""
        packed = pack_staged_row(row)
        if self._size + len(packed) > PIECE_BYTES or len(self._packed) == PIECE_ROWS:
            yield from self.rest()
        self.rows += 1
        if len(packed) > PIECE_BYTES:
            parts = range(0, len(packed), PIECE_BYTES)
            for begin in parts:
                yield _head(len(parts)) + packed[begin : begin + PIECE_BYTES]
            return
        self._packed.append(packed)
        self._size += len(packed)

    def rest(self) -> Iterator[bytes]:
        """The last piece, if any rows are left."""
        if self._packed:
            yield _head(_WHOLE) + b"".join(self._packed)
            self._packed.clear()
            self._size = 0


def parts(piece: bytes) -> int:
    """How many pieces a row has that begins with this one, usually 1; raises ``FormatTooNew``,
    ``CorruptData``."""
    if len(piece) < _HEAD:
        raise CorruptData(what="staged rows", problem="a piece has no head")
    if piece[0] > VERSION:
        raise FormatTooNew(what="staged rows", found=piece[0], known=VERSION)
    return int.from_bytes(piece[1:_HEAD], "big")


def rows(pieces: Sequence[bytes]) -> list[StagedRow]:
    """The rows in a piece, or the one row in several; raises ``CorruptData``."""
    return unpack_staged_rows(b"".join(piece[_HEAD:] for piece in pieces))


def _head(count: int) -> bytes:
    return bytes([VERSION]) + count.to_bytes(2, "big")
