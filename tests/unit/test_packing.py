from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.messages.streams.packing import PIECE_BYTES, PIECE_ROWS, Packer, parts, rows
from fdbqueue.schema.codec.envelopes import Envelope, pack_envelope, pack_plain
from fdbqueue.schema.codec.sinks import StagedRow, pack_staged_row, unpack_staged_rows
from fdbqueue.values.model import BYTES

HEADERS = st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.text(max_size=5))


@given(
    st.binary(max_size=50),
    st.integers(0, 255),
    st.integers(0, 2**45),
    HEADERS,
    st.sampled_from([BYTES, "application/json"]),
)
def test_a_plain_envelope_is_packed_as_any_other(
    payload: bytes, priority: int, now_ms: int, headers: dict[str, bool | str | None], kind: str
) -> None:
    envelope = Envelope(payload, priority, now_ms, dict(headers), content_type=kind)
    assert pack_plain(payload, priority, now_ms, headers, kind) == pack_envelope(envelope)


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
        StagedRow(level, size, envelope),
        StagedRow(level, size, envelope, due_ms, dedup_id, False),
    ]
    assert unpack_staged_rows(b"".join(map(pack_staged_row, given))) == given


@given(st.lists(st.integers(0, 3 * PIECE_BYTES) | st.integers(0, 20), max_size=10))
def test_pieces_fit_and_have_all_rows(sizes: list[int]) -> None:
    given = [StagedRow(4, size, bytes(size)) for size in [*sizes, *[5] * (PIECE_ROWS + 1)]]
    cutter = Packer()
    pieces = [piece for row in given for piece in cutter.add(row)]
    pieces += cutter.rest()

    found: list[StagedRow] = []
    while pieces:
        length = parts(pieces[0])
        unit = rows(pieces[:length])
        assert len(unit) <= PIECE_ROWS
        assert all(len(piece) <= PIECE_BYTES + 3 for piece in pieces[:length])
        found += unit
        del pieces[:length]
    assert found == given
    assert cutter.rows == len(given)
