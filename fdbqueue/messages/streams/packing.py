"""Packing staged rows into values: many rows in a piece, or a large row in several pieces.

Plain messages of one level are packed together. Rows of different levels may change places in a
piece; those of one level keep their order, and so do those that are not plain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import CorruptData
from ...schema.codec import VERSION, encode, unpack
from ...schema.codec.sinks import StagedRun

PIECE_BYTES = 90_000
PIECE_ROWS = 1_000

_WHOLE = 1
_HEAD, _LIST = 3, 5
_RUN_BYTES = 40
_LENGTH_BYTES = 5
"""The most that a run adds to its envelopes, and to each of them."""


class _Run:
    """Plain messages of a level."""

    __slots__ = ("envelopes", "size")

    def __init__(self) -> None:
        self.envelopes: list[bytes] = []
        self.size = 0


class Packer:
    """Collects rows in pieces.

    pieces: those that are full, for the caller to take away. rows: how many rows are in pieces.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.rows = 0
        self._runs: dict[int, _Run] = {}
        self._packed: list[bytes] = []
        self._count, self._size = 0, _LIST

    def add_plain(self, level: int, size: int, envelope: bytes) -> None:
        """Add a message that needs its envelope only. size: of its payload."""
        length = len(envelope) + _LENGTH_BYTES
        if _LIST + length + _RUN_BYTES > PIECE_BYTES:
            self.add(StagedRun(level, size, [envelope]))
            return
        if self._size + length + _RUN_BYTES > PIECE_BYTES or self._count == PIECE_ROWS:
            self.close()
        run = self._runs.get(level)
        if run is None:
            run = self._runs[level] = _Run()
            self._size += _RUN_BYTES
        run.envelopes.append(envelope)
        run.size += size
        self._size += length
        self._count += 1

    def add(self, run: StagedRun) -> None:
        """Add one row of any kind."""
        self._end(run.level)
        packed = encode(run)
        if self._size + len(packed) > PIECE_BYTES or self._count == PIECE_ROWS:
            self.close()
        if _LIST + len(packed) > PIECE_BYTES:
            row = _list([packed])
            parts = range(0, len(row), PIECE_BYTES)
            self.pieces += [_head(len(parts)) + row[begin : begin + PIECE_BYTES] for begin in parts]
            self.rows += 1
            return
        self._packed.append(packed)
        self._size += len(packed)
        self._count += 1

    def close(self) -> None:
        """Make a piece of the rows that are in none yet."""
        for level in list(self._runs):
            self._end(level)
        if self._packed:
            self.pieces.append(_head(_WHOLE) + _list(self._packed))
        self.rows += self._count
        self._packed = []
        self._count, self._size = 0, _LIST

    def _end(self, level: int) -> None:
        """Pack the run of a level: what follows stands behind it."""
        run = self._runs.pop(level, None)
        if run is not None:
            self._packed.append(encode(StagedRun(level, run.size, run.envelopes)))


def parts(piece: bytes) -> int:
    """How many pieces a row has that begins with this one, usually 1; raises ``CorruptData``,
    ``CorruptData``."""
    if len(piece) < _HEAD:
        raise CorruptData(what="staged rows", problem="a piece has no head")
    if piece[0] > VERSION:
        raise CorruptData(what="staged rows", problem=f"their version is {piece[0]}")
    return int.from_bytes(piece[1:_HEAD], "big")


def runs(pieces: Sequence[bytes]) -> list[StagedRun]:
    """The runs in a piece, or the one row in several; raises ``CorruptData``."""
    stored = bytes([VERSION]) + b"".join(piece[_HEAD:] for piece in pieces)
    return unpack(stored, "staged rows", list[StagedRun])


def _list(packed: Sequence[bytes]) -> bytes:
    """A MessagePack array of packed elements."""
    return b"\xdd" + len(packed).to_bytes(4, "big") + b"".join(packed)


def _head(count: int) -> bytes:
    return bytes([VERSION]) + count.to_bytes(2, "big")
