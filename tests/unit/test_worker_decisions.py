from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from fdbqueue import Delivery, Message, Queue, aio
from fdbqueue.errors import InvalidArgument
from fdbqueue.store.binding import fdb
from fdbqueue.store.connection import ConnectionState, next_state
from fdbqueue.worker.consumer import MAX_REST, rest
from fdbqueue.worker.decisions import (
    MAX_AHEAD,
    QueueTurn,
    expires_soon,
    next_turn,
    outranked,
    should_fetch,
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
    left, turn = list(loads), QueueTurn()
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
    turn, order = QueueTurn(), ""
    for _ in range(12):
        after = next_turn(turn, [True, True], [2, 4])
        assert after is not None
        turn, order = after, order + "ab"[after.queue]
    assert order in ("aabbbbaabbbb", "bbbbaabbbbaa")


def test_nothing_prefetched_is_nobodys_turn() -> None:
    assert next_turn(QueueTurn(), [False, False], [1, 1]) is None


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


QUEUE: Queue[Any] = Queue("q")


def plain(message: Any) -> None: ...
def with_transaction(tr: Any, message: Any) -> None: ...
def either(*arguments: Any) -> None: ...
def neither() -> None: ...
async def coroutine(message: Any) -> None: ...


def test_the_parameters_of_a_handler_tell_its_kind() -> None:
    assert not Handler.of(plain, QUEUE).transactional
    assert Handler.of(with_transaction, QUEUE).transactional
    assert Handler.of(either, QUEUE, transactional=True).transactional
    assert Handler.of(plain, QUEUE, batch=5).batch == 5


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
        Handler.of(function, QUEUE, **how)


@dataclass
class Order:
    number: int


class Row(TypedDict):
    number: int


def of_bytes(order: bytes) -> None: ...
def of_values_with_transaction(tr: Any, order: dict[str, int]) -> None: ...
def of_batches(orders: list[bytes]) -> None: ...
def of_orders(orders: list[Order]) -> None: ...
def of_an_order(order: Order) -> None: ...
def of_a_row(row: Row) -> None: ...
def of_some(order: Order | None) -> None: ...
def of_messages(messages: list[Message]) -> None: ...
def of_deliveries(tr: Any, deliveries: list[Delivery]) -> None: ...
def of_a_delivery(delivery: Delivery) -> None: ...
def of_either(message: Message | None) -> None: ...
def of_anything(*messages: Any) -> None: ...
def of_objects(message: object) -> None: ...
def of_lists(messages: list) -> None: ...  # type: ignore[type-arg]
def of_unknown(order: Unknown) -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "how", "takes"),
    [
        (of_bytes, {}, "value"),
        (of_values_with_transaction, {}, "value"),
        (of_batches, {"batch": 5}, "value"),
        (partial(of_values_with_transaction, None), {}, "value"),
        (of_messages, {"batch": 5}, "message"),
        (of_deliveries, {"batch": 5}, "delivery"),
        (of_a_delivery, {}, "delivery"),
        (of_either, {}, "message"),
        (of_anything, {"transactional": False}, "value"),
        (of_objects, {}, "value"),
        (of_lists, {"batch": 5}, "value"),
        (plain, {}, "value"),
        (lambda order: None, {}, "value"),
    ],
)
def test_the_annotation_of_a_handler_tells_what_it_takes(
    function: Any, how: dict[str, Any], takes: str
) -> None:
    assert Handler.of(function, QUEUE, **how).takes == takes


@pytest.mark.parametrize(
    ("serializer", "function", "how", "problem"),
    [
        (None, of_an_order, {}, "it takes Order, but the values of queue 'q' are bytes or JSON"),
        (bytes, of_an_order, {}, "it takes Order, but the values of queue 'q' are bytes"),
        (Order, of_bytes, {}, "it takes bytes, but the values of queue 'q' are Order"),
        (Order, of_batches, {"batch": 5}, "it takes bytes, but the values of queue 'q' are Order"),
        (Order, of_a_row, {}, "it takes Row, but the values of queue 'q' are Order"),
        (int, of_some, {}, "Order | None, but the values of queue 'q' are int"),
        (Order, of_an_order, {}, None),
        (Order, of_orders, {"batch": 5}, None),
        (Order, of_some, {}, None),
        (Order, of_objects, {}, None),
        (Order, of_messages, {"batch": 5}, None),
        (Order, plain, {}, None),
        (None, of_a_row, {}, None),
        (Row, of_a_row, {}, None),
        (None, of_some, {}, None),
    ],
)
def test_a_handler_of_another_type_than_the_queue_is_refused(
    serializer: Any, function: Any, how: dict[str, Any], problem: str | None
) -> None:
    queue: Queue[Any] = Queue("q", serializer=serializer)
    if problem is None:
        Handler.of(function, queue, **how)
        return
    with pytest.raises(InvalidArgument, match=re.escape(problem)):
        Handler.of(function, queue, **how)


def names_swapped(order: Any, tr) -> None: ...  # type: ignore[no-untyped-def]
def typed_last(order: Any, t: fdb.Transaction) -> None: ...
def order_first(order: Order, t: Any) -> None: ...
def orders_first(orders: list[Order], t: Any) -> None: ...
def message_first(message: Message, t: Any) -> None: ...
def of_aio(t: aio.Transaction, order: Order) -> None: ...
def maybe_first(t: fdb.Transaction | None, order: Any) -> None: ...
def trade(transaction: Any, tr: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("serializer", "function", "how", "names"),
    [
        (None, names_swapped, {}, "(order, tr)"),
        (Order, names_swapped, {"transactional": True}, "(order, tr)"),
        (None, typed_last, {}, "(order, t)"),
        (Order, order_first, {}, "(order, t)"),
        (Order, orders_first, {"batch": 5}, "(orders, t)"),
        (None, message_first, {}, "(message, t)"),
        (None, lambda tea, tr: None, {}, "(tea, tr)"),
        (Order, of_aio, {}, None),
        (None, maybe_first, {}, None),
        (None, trade, {}, None),
        (None, of_values_with_transaction, {}, None),
    ],
)
def test_a_handler_with_swapped_parameters_is_told_which_to_swap(
    serializer: Any, function: Any, how: dict[str, Any], names: str | None
) -> None:
    queue: Queue[Any] = Queue("q", serializer=serializer)
    if names is None:
        assert Handler.of(function, queue, **how).transactional
        return
    with pytest.raises(InvalidArgument, match=re.escape(f"takes {names}: swap them")):
        Handler.of(function, queue, **how)


def test_an_annotation_that_cannot_be_found_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Unknown"):
        Handler.of(of_unknown, QUEUE)


@given(attempts=st.integers(2, 10**6), seconds=st.floats(0, 10))
def test_a_rest_is_bounded_after_any_number_of_attempts(attempts: int, seconds: float) -> None:
    assert 0 <= rest(attempts, seconds) <= min(MAX_REST, 2**10 * seconds)
