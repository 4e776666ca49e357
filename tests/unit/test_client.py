from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.store.binding import fdb
from fdbqueue.store.client import pack_bytes, pack_int, parse_int, parse_last_bytes

NUMBERS = st.integers(0, 2**64 - 2)


@given(NUMBERS, st.binary(max_size=40), st.binary(max_size=4))
def test_elements_are_those_of_the_tuple_layer(number: int, data: bytes, prefix: bytes) -> None:
    key = prefix + pack_int(number) + pack_bytes(data)
    assert key == fdb.tuple.pack((number, data), prefix)
    found, end = parse_int(key, len(prefix))
    assert (found, parse_last_bytes(key, end)) == (number, data)
