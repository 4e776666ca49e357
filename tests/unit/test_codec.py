from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.errors import (
    InvalidArgument,
    InvalidPayload,
    PayloadTooLarge,
)
from fdbqueue.schema.codec import pack_counters, unpack_counters
from fdbqueue.schema.envelope import Envelope
from fdbqueue.values.content import check_headers, check_payload
from fdbqueue.values.model import Position
from fdbqueue.values.options import MAX_PAYLOAD

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
envelopes = st.builds(
    Envelope,
    payload=st.binary(max_size=200),
    priority=st.integers(0, 255),
    enqueued_at_ms=st.integers(0, 2**50),
    headers=st.dictionaries(names, values, max_size=5),
    attempts=st.integers(0, 1000),
    id=st.none() | st.text(max_size=10),
)
positions = st.builds(
    Position, st.integers(0, 255), st.integers(0, 2**48 - 1), st.binary(min_size=8, max_size=8)
)


@given(positions)
def test_an_id_names_its_position(position: Position) -> None:
    assert Position.from_id(position.to_id()) == position


@given(st.lists(positions, min_size=2))
def test_ids_sort_as_positions_do(found: list[Position]) -> None:
    assert sorted(p.to_id() for p in found) == [p.to_id() for p in sorted(found)]


@given(st.lists(st.tuples(*[st.integers(-5, 9)] * 4), max_size=20))
def test_packed_counters_add_up_one_by_one(deltas: list[tuple[int, ...]]) -> None:
    total = 0
    for delta in deltas:
        total = (total + int.from_bytes(pack_counters(delta), "little")) % 2**256
    stored = total.to_bytes(32, "little")
    assert unpack_counters(stored, 4) == tuple(sum(delta[n] for delta in deltas) for n in range(4))


def test_counters_that_are_not_stored_are_zero() -> None:
    assert unpack_counters(None, 3) == (0, 0, 0)


@pytest.mark.parametrize("payload", [None, "text", 5, {"a": 1}, [b"x"]])
def test_a_payload_of_a_wrong_type_is_refused(payload: object) -> None:
    with pytest.raises(InvalidPayload, match="must be bytes, not"):
        check_payload(payload)


def test_a_payload_may_be_any_kind_of_bytes() -> None:
    assert check_payload(bytearray(b"a")) == check_payload(memoryview(b"a")) == b"a"


def test_a_payload_over_the_limit_is_refused() -> None:
    assert len(check_payload(b"x" * MAX_PAYLOAD)) == MAX_PAYLOAD
    with pytest.raises(PayloadTooLarge, match="9,000,001 bytes"):
        check_payload(b"x" * (MAX_PAYLOAD + 1))


@pytest.mark.parametrize(
    "headers",
    [
        {1: "a"},
        {"a": b"bytes"},
        {"a": [1]},
        {"a": 2**64},
        {"a": float("nan")},
        {"a": -float("inf")},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": "x" * 9000},
        ["a"],
        "text",
    ],
)
def test_headers_that_cannot_be_stored_are_refused(headers: object) -> None:
    with pytest.raises(InvalidArgument):
        check_headers(headers)  # type: ignore[arg-type]
