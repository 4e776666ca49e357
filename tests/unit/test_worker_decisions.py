from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue import Message
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.connection import ConnectionState, next_state
from fdbqueue.worker.consumer import MAX_REST, rest
from fdbqueue.worker.decisions import (
    MAX_AHEAD,
    Turn,
    expires_soon,
    next_turn,
    outranked,
    should_fetch,
    time_to_refresh,
    window,
)
from fdbqueue.worker.handlers import Handler


@given(
    loads=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    runs=st.lists(st.integers(1, 12), min_size=5, max_size=5),
)
def test_no_queue_waits_longer_than_one_run_of_each_other(
    loads: list[int], runs: list[int]
) -> None:
    left, turn = list(loads), Turn()
    order: list[int] = []
    while (after := next_turn(turn, [n > 0 for n in left], runs)) is not None:
        turn = after
        left[turn.queue] -= 1
        order.append(turn.queue)
    assert left == [0] * len(loads), "whatever waits is served"
    for queue in set(order):
        since = 0
        last = len(order) - order[::-1].index(queue)
        for served in order[:last]:
            since = 0 if served == queue else since + 1
            assert since <= sum(run for n, run in enumerate(runs[: len(loads)]) if n != queue)


def test_weights_are_runs_of_different_length() -> None:
    turn, order = Turn(), ""
    for _ in range(12):
        after = next_turn(turn, [True, True], [2, 4])
        assert after is not None
        turn, order = after, order + "ab"[after.queue]
    assert order in ("aabbbbaabbbb", "bbbbaabbbbaa")


def test_nothing_prefetched_is_nobodys_turn() -> None:
    assert next_turn(Turn(), [False, False], [1, 1]) is None


@given(room=st.integers(0, 20), window=st.integers(1, 20), prefetched=st.integers(0, 20))
def test_more_is_fetched_before_hands_are_idle_but_not_one_by_one(
    room: int, window: int, prefetched: int
) -> None:
    worth = should_fetch(room, window, prefetched)
    if worth:
        assert room > 0
    if room and not prefetched:
        assert worth
    if worth and prefetched:
        assert room >= window / 2


def test_fast_handlers_have_more_messages_waiting_for_them_than_slow_ones() -> None:
    assert window(16, 8, 0.1) == 16
    assert window(16, 8, 0.01) == 40
    assert window(16, 8, 0.001) == window(16, 8, 0.0) == MAX_AHEAD
    assert window(2_000, 8, 0.0) == 2_000


def test_more_urgent_messages_are_looked_for_after_as_many_as_agreed() -> None:
    assert not time_to_refresh(handled=4, refresh_after=5, prefetched=3)
    assert time_to_refresh(handled=5, refresh_after=5, prefetched=3)
    assert not time_to_refresh(handled=5, refresh_after=5, prefetched=0), "nothing to give back"
    assert not time_to_refresh(handled=99, refresh_after=None, prefetched=3)
    assert time_to_refresh(handled=0, refresh_after=0, prefetched=3), "before each message"


@pytest.mark.parametrize(
    ("ready", "prefetched", "room", "count"),
    [
        ([2], [1, 3], 0, 1),
        ([3], [1, 3], 0, 0),
        ([], [1, 3], 0, 0),
        ([0], [], 0, 0),
        ([0, 1, 2, 4], [1, 3, 3, 3], 0, 3),
        ([0, 1, 2, 4], [1, 3, 3, 3], 1, 2),
        ([0, 0, 0], [5], 0, 1),
        ([0, 0], [5, 5], 2, 0),
    ],
)
def test_as_many_prefetched_messages_are_exchanged_as_more_urgent_ones_have_no_room(
    ready: list[int], prefetched: list[int], room: int, count: int
) -> None:
    assert outranked(ready, prefetched, room) == count


@given(
    ready=st.lists(st.integers(0, 5), max_size=9).map(sorted),
    prefetched=st.lists(st.integers(0, 5), max_size=9).map(sorted),
    room=st.integers(0, 4),
)
def test_an_exchange_leaves_the_most_urgent_of_all(
    ready: list[int], prefetched: list[int], room: int
) -> None:
    count = outranked(ready, prefetched, room)
    held = sorted(prefetched[: len(prefetched) - count] + ready[: count + room])
    assert held == sorted(prefetched + ready)[: len(held)]


def test_a_lease_is_extended_once_a_third_of_it_is_over() -> None:
    assert not expires_soon(14, 30)
    assert expires_soon(16, 30)


@given(
    answers=st.lists(st.tuples(st.booleans(), st.floats(0, 60)), max_size=20),
)
def test_a_connection_is_lost_after_silence_and_reconnected_by_an_answer(
    answers: list[tuple[bool, float]],
) -> None:
    state = ConnectionState.CONNECTED
    cut = False
    for answered, silent in answers:
        before = state
        state = next_state(before, answered, silent, lost_after=30)
        if state is ConnectionState.LOST:
            assert before in (ConnectionState.SUSPENDED, ConnectionState.LOST)
        state = next_state(state, answered, silent, lost_after=30)
        assert next_state(state, answered, silent, lost_after=30) is state
        if answered:
            reconnected = ConnectionState.RECONNECTED if cut else ConnectionState.CONNECTED
            assert state is reconnected
        else:
            cut = True
            assert state is (ConnectionState.LOST if silent >= 30 else ConnectionState.SUSPENDED)


def plain(message: Any) -> None: ...
def with_transaction(tr: Any, message: Any) -> None: ...
def either(*arguments: Any) -> None: ...
def neither() -> None: ...
async def coroutine(message: Any) -> None: ...


def test_the_parameters_of_a_handler_tell_its_kind() -> None:
    assert not Handler.of(plain).transactional
    assert Handler.of(with_transaction).transactional
    assert Handler.of(either, transactional=True).transactional
    assert Handler.of(plain, batch=5).batch == 5


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (either, {}),
        (neither, {}),
        (coroutine, {}),
        (plain, {"transactional": True}),
        (with_transaction, {"transactional": False}),
        (plain, {"batch": 0}),
        ("plain", {}),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(function: Any, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Handler.of(function, **how)


def of_values(order: bytes) -> None: ...
def of_values_with_transaction(tr: Any, order: dict[str, int]) -> None: ...
def of_batches(orders: list[bytes]) -> None: ...
def of_messages(messages: list[Message]) -> None: ...
def of_either(message: Message | None) -> None: ...
def of_anything(*messages: Any) -> None: ...
def of_objects(message: object) -> None: ...
def of_lists(messages: list) -> None: ...  # type: ignore[type-arg]
def of_unknown(order: Unknown) -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "how", "values"),
    [
        (of_values, {}, True),
        (of_values_with_transaction, {}, True),
        (of_batches, {"batch": 5}, True),
        (of_values, {"batch": 5}, False),
        (partial(of_values_with_transaction, None), {}, True),
        (of_messages, {"batch": 5}, False),
        (of_either, {}, False),
        (of_anything, {"transactional": False}, False),
        (of_objects, {}, False),
        (of_lists, {"batch": 5}, False),
        (plain, {}, False),
        (lambda message: None, {}, False),
    ],
)
def test_the_annotation_of_a_handler_tells_whether_it_takes_values(
    function: Any, how: dict[str, Any], values: bool
) -> None:
    handler = Handler.of(function, value=lambda message: message.payload, **how)
    assert (handler.value is not None) == values


def test_an_annotation_that_cannot_be_found_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Unknown"):
        Handler.of(of_unknown)


@given(attempts=st.integers(2, 10**6), seconds=st.floats(0, 10))
def test_a_rest_is_bounded_after_any_number_of_attempts(attempts: int, seconds: float) -> None:
    assert 0 <= rest(attempts, seconds) <= min(MAX_REST, 2**10 * seconds)
