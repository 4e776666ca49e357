from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.consumers.credit import Credit
from fdbqueue.errors import InvalidArgument

LIMITS = st.none() | st.integers(1, 50)
SIZES = st.lists(st.integers(0, 60), max_size=30)


def handed(credit: Credit, sizes: list[int]) -> tuple[Credit, list[int]]:
    """Hand over what is admitted of the first messages."""
    count = credit.admits(sizes)
    for size in sizes[:count]:
        credit = credit.taken(size)
    return credit, sizes[:count]


@given(messages=LIMITS, bytes=LIMITS, sizes=SIZES)
def test_a_window_is_never_exceeded_but_by_a_single_message(
    messages: int | None, bytes: int | None, sizes: list[int]
) -> None:
    _, held = handed(Credit(messages, bytes), sizes)
    assert messages is None or len(held) <= messages
    assert bytes is None or sum(held) <= bytes or len(held) == 1


@given(messages=LIMITS, bytes=LIMITS, sizes=SIZES)
def test_a_window_lets_everything_through_in_the_end(
    messages: int | None, bytes: int | None, sizes: list[int]
) -> None:
    credit, left = Credit(messages, bytes), list(sizes)
    while left:
        credit, held = handed(credit, left)
        assert held, "who holds nothing is handed the first message, whatever its size"
        left = left[len(held) :]
        for size in held:
            credit = credit.settled(size)
        assert (credit.used_messages, credit.used_bytes) == (0, 0)


@given(messages=LIMITS, bytes=LIMITS, sizes=SIZES)
def test_what_is_admitted_cannot_be_more(
    messages: int | None, bytes: int | None, sizes: list[int]
) -> None:
    credit, held = handed(Credit(messages, bytes), sizes)
    assert credit.admits(sizes[len(held) :]) == 0


@given(messages=st.integers(0, 20), bytes=st.integers(0, 50), sizes=SIZES)
def test_explicit_credit_is_used_up_and_never_exceeded(
    messages: int, bytes: int, sizes: list[int]
) -> None:
    credit, held = handed(Credit(messages, bytes, window=False), sizes)
    for size in held:
        credit = credit.settled(size)
    assert len(held) <= messages
    assert sum(held) <= bytes
    assert credit.admits(sizes[len(held) :]) == 0, "settling gives nothing back"
    more = credit.granted(messages=100, bytes=10_000)
    assert more.admits(sizes[len(held) :]) == len(sizes) - len(held)


def test_a_message_that_is_too_large_waits_for_what_is_held_to_be_settled() -> None:
    credit = Credit(bytes=100).taken(60)
    assert credit.admits([50]) == 0
    assert credit.admits([40]) == 1
    assert credit.settled(60).admits([500]) == 1


@pytest.mark.parametrize("bad", [{"messages": -1}, {"bytes": "9"}, {"messages": 0}])
def test_credit_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        Credit(**bad)  # type: ignore[arg-type]
