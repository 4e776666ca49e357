from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.messages.streams.packing import PIECE_BYTES, PIECE_ROWS, Packer, runs
from fdbqueue.schema.streams import StagedPiece, StagedRun


@given(
    st.integers(0, 255),
    st.integers(0, 2**40),
    st.binary(max_size=50),
    st.none() | st.integers(0, 2**45),
    st.none() | st.text(),
)
def test_staged_rows_come_back(
    level: int, size: int, envelope: bytes, due_ms: int | None, dedup_id: str | None
) -> None:
    given = [
        StagedRun(level, size, [envelope]),
        StagedRun(level, size, [envelope, b"another"]),
        StagedRun(level, size, [envelope], due_ms, dedup_id, False),
    ]
    packer = Packer()
    for run in given:
        packer.add(run)
    packer.close()
    assert runs(map(StagedPiece.unpack, packer.pieces)) == given
    assert given[1].envelopes == [envelope, b"another"]


SIZES = st.integers(0, 3 * PIECE_BYTES) | st.integers(0, 20)


@given(st.lists(st.tuples(st.integers(0, 2), SIZES, st.booleans()), max_size=40), st.booleans())
def test_pieces_fit_and_have_all_rows_in_order(
    rows: list[tuple[int, int, bool]], many: bool
) -> None:
    if many:
        rows = [*rows, *[(1, 5, True)] * (PIECE_ROWS + 1)]
    packer = Packer()
    for n, (level, size, plain) in enumerate(rows):
        envelope = n.to_bytes(4, "big") + bytes(size)
        if plain:
            packer.add_plain(level, size, envelope)
        else:
            packer.add(StagedRun(level, size, [envelope], n, None, False))
    packer.close()

    found: list[tuple[int, int, bool, int]] = []
    pieces = packer.pieces
    while pieces:
        length = StagedPiece.unpack(pieces[0]).parts
        unit = runs(map(StagedPiece.unpack, pieces[:length]))
        assert 0 < sum(run.messages for run in unit) <= PIECE_ROWS
        assert all(len(piece) <= PIECE_BYTES + 10 for piece in pieces[:length])
        for run in unit:
            assert len(run.envelopes) == run.messages
            assert run.size == sum(len(each) - 4 for each in run.envelopes)
            for each in run.envelopes:
                n = int.from_bytes(each[:4], "big")
                found.append((run.level, len(each) - 4, run.plain, n))
        del pieces[:length]
    assert sorted(n for *_, n in found) == list(range(len(rows)))
    assert all(rows[n] == (level, size, plain) for level, size, plain, n in found)
    for level in range(3):
        numbers = [n for each, *_, n in found if each == level]
        assert numbers == sorted(numbers)
    others = [n for _, _, plain, n in found if not plain]
    assert others == sorted(others)
    assert packer.rows == len(rows)
