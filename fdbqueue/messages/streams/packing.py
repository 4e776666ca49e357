"""Packing staged rows into values: many rows in a piece, or a large row in several pieces.

Plain messages of one level are packed together. Rows of different levels may change places in a
piece; those of one level keep their order, and so do those that are not plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Raw

from ...schema.codec import encode, pack, unpack
from ...schema.streams import StagedPiece, StagedRun

PIECE_BYTES = 90_000
PIECE_ROWS = 1_000

_LIST = 5
_RUN_BYTES = 40
_LENGTH_BYTES = 5
"""The most that a run adds to its envelopes, and to each of them."""


class Packer:
    """Collects rows in pieces.

    pieces: those that are full, for the caller to take away. rows: how many rows are in pieces.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.rows = 0
        # Plain messages by level, and the sizes of their payloads.
        self._runs: dict[int, list[bytes]] = {}
        self._sizes: Counter[int] = Counter()
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
            run = self._runs[level] = []
            self._size += _RUN_BYTES
        run.append(envelope)
        self._sizes[level] += size
        self._size += length
        self._count += 1

    def add(self, run: StagedRun) -> None:
        """Add one row of any kind."""
        # Rows of a level keep their order, so what was collected of it goes first.
        self._end(run.level)
        packed = encode(run)
        if self._size + len(packed) > PIECE_BYTES or self._count == PIECE_ROWS:
            self.close()
        if _LIST + len(packed) > PIECE_BYTES:
            # One row that needs several values: its parts are pieces of their own, which name how
            # many they are.
            row = pack([Raw(packed)])
            parts = [row[begin : begin + PIECE_BYTES] for begin in range(0, len(row), PIECE_BYTES)]
            self.pieces += [StagedPiece(len(parts), part).pack() for part in parts]
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
            self.pieces.append(StagedPiece(1, pack([*map(Raw, self._packed)])).pack())
        self.rows += self._count
        self._packed = []
        self._count, self._size = 0, _LIST

    def _end(self, level: int) -> None:
        """Pack the run of a level: what follows stands behind it."""
        run = self._runs.pop(level, None)
        if run is not None:
            self._packed.append(encode(StagedRun(level, self._sizes.pop(level), run)))


def runs(pieces: Iterable[StagedPiece]) -> list[StagedRun]:
    """The runs in a piece, or the one row in several; raises ``CorruptData``."""
    return unpack(b"".join(piece.rows for piece in pieces), list[StagedRun], "staged rows")
