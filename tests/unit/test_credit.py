from __future__ import annotations

import pytest
from hypothesis import assume, given
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
def test_explicit_credit_is_used_up_and_exceeded_only_by_a_message_larger_than_all_of_it(
    messages: int, bytes: int, sizes: list[int]
) -> None:
    credit, held = handed(Credit(messages, bytes, window=False), sizes)
    assert len(held) <= messages
    assert sum(held) <= bytes or (
        bytes > 0 and held == [size for size in sizes[:1] if size > bytes]
    )
    left = sizes[len(held) :]
    assert credit.admits(left) == 0
    for size in held:
        credit = credit.settled(size)
    alone = [size for size in left[:1] if size > bytes > sum(held) and len(held) < messages]
    assert credit.admits(left) == len(alone), "settling gives nothing back"
    more = credit.granted(messages=100, bytes=10_000)
    assert more.admits(left) == len(left)


@given(messages=LIMITS, bytes=LIMITS, window=st.booleans(), sizes=SIZES)
def test_what_goes_back_before_anything_was_done_costs_no_credit(
    messages: int | None, bytes: int | None, window: bool, sizes: list[int]
) -> None:
    assume(window or messages is not None or bytes is not None)
    credit = Credit(messages, bytes, window=window)
    taken, held = handed(credit, sizes)
    assert taken.returned(*held) == credit


def test_a_message_larger_than_all_granted_credit_is_delivered_alone_and_what_it_took_is_owed() -> (
    None
):
    credit = Credit(bytes=100, window=False)
    assert credit.admits([500, 1]) == 1
    assert credit.taken(60).admits([500]) == 0, "something is held"
    used = credit.taken(60).settled(60)
    assert used.admits([50]) == 0, "it fits once more is granted"
    assert used.admits([500]) == 1, "it never would"
    owing = used.taken(500).settled(500)
    assert owing.exhausted
    assert owing.granted(bytes=460).exhausted
    assert owing.granted(bytes=470).admits([10]) == 1


def test_credit_that_is_withdrawn_is_used_up() -> None:
    credit = Credit(messages=9, bytes=90, window=False).taken(10)
    assert credit.withdrawn().exhausted
    assert credit.withdrawn().granted(messages=1, bytes=5).admits([5, 1]) == 1
    assert credit.withdrawn().returned(10).admits([10, 1]) == 1, "but not what goes back"


def test_a_message_that_is_too_large_waits_for_what_is_held_to_be_settled() -> None:
    credit = Credit(bytes=100).taken(60)
    assert credit.admits([50]) == 0
    assert credit.admits([40]) == 1
    assert credit.settled(60).admits([500]) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"messages": -1},
        {"bytes": "9"},
        {"messages": True},
        {"messages": 0},
        {"window": False},
        {"messages": 1, "window": 0},
    ],
)
def test_credit_that_makes_no_sense_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        Credit(**bad)  # type: ignore[arg-type]
