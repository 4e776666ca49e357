"""The tests of the blocking API, run through that of asyncio: each call runs in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.aio import twins
from fdbqueue.store import tasks

SHORT = """
    messages_that_are_there_and_that_come_are_handled_and_acknowledged
    an_unknown_commit_of_a_transactional_handler_counts_once
    a_batch_handler_is_given_what_is_there_and_settles_it_as_one
    a_message_whose_handler_fails_is_tried_again
    a_handler_says_when_to_try_again_or_that_it_never_will
    an_effect_whose_lease_is_lost_is_not_committed
    a_graceful_stop_finishes_what_is_in_hand_and_gives_back_the_rest
    the_second_stop_gives_back_what_is_in_hand_at_once
    what_a_worker_held_when_the_connection_was_lost_is_begun_only_anew
    of_a_batch_that_fails_only_the_message_at_fault_loses_an_attempt
    a_handler_that_hangs_is_replaced_and_its_message_given_up
    one_queue_of_a_worker_never_waits_for_another
    a_worker_that_is_started_again_and_again_leaves_no_threads
    whatever_becomes_of_a_shared_commit
    a_worker_is_not_ready_while_the_store_is_away_and_lives
    a_worker_that_is_told_to_stop_is_not_ready_at_once_and_lives_to_its_end

    back_pressure_has_an_end
    a_blocked_producer_goes_on_at_the_low_water_mark
    a_bound_that_was_lowered_by_far_is_come_down_to

    large_payloads_move_whole
    what_matches_is_moved_and_the_rest_stays
    lines_of_ordering_keys_move_in_their_order
    it_is_done_and_tells_its_progress

    one_round_serves_all_who_stand_in_line
    requests_are_served_in_the_order_in_which_they_came
    auto_stands_in_line_behind_others
    a_leader_that_does_not_return_delays_and_does_not_block
    time_ends_for_a_leader_and_for_those_who_wait_and_no_trace_is_left
    large_messages_are_served_in_several_rounds

    waiting_for_nothing_ends_in_time
    calls_that_wait_end_when_their_subscription_is_removed
    calls_that_wait_are_listed_and_leave_nothing_behind
    a_message_that_comes_back_is_delivered_by_every_subscription_that_has_passed_it
    a_plain_look_goes_through_all_messages_and_keeps_no_place
"""
"""Those of ``PARTLY`` that always run; the others are slow."""
PARTLY = [f"test_{name}.py" for name in ("worker*", "bounds", "bulk", "line", "subscriptions")]
_runner = asyncio.Runner()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    always = {f"test_{name}" for name in SHORT.split()}
    for item in items:
        here = item.path.parent == Path(__file__).parent
        partly = here and any(item.path.match(name) for name in PARTLY)
        if partly and getattr(item, "originalname", None) not in always:
            item.add_marker(pytest.mark.slow)


def _run(awaitable: Any) -> Any:
    async def main() -> Any:
        return await awaitable

    if threading.current_thread() is threading.main_thread():
        return _runner.run(main())
    return asyncio.run(main())


def _rows(found: AsyncIterator[Any]) -> Iterator[Any]:
    try:
        while True:
            try:
                yield twins.to_original(_run(anext(found)))
            except StopAsyncIteration:
                return
    finally:
        _run(found.aclose())  # type: ignore[attr-defined]


def _through(made: type[twins.Twin], name: str, given: Any) -> Any:
    """A method of the blocking API that calls its twin, unless an operation calls it."""
    original = given.__func__ if isinstance(given, classmethod) else given

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tasks.current.get() is not None:
            return original(self, *args, **kwargs)
        owner = made if isinstance(given, classmethod) else twins.to_twin(self)
        found = getattr(owner, name)(*args, **kwargs)
        if inspect.isasyncgen(found):
            return _rows(found)
        return twins.to_original(_run(found))

    call.__wrapped__ = original  # type: ignore[attr-defined]
    return classmethod(call) if isinstance(given, classmethod) else call


def _waits(twin: Any) -> bool:
    function = twin.__func__ if isinstance(twin, classmethod) else twin
    if inspect.iscoroutinefunction(function):
        return True
    returned = inspect.isfunction(function) and inspect.signature(function).return_annotation
    return str(returned).startswith("Iterator")


@pytest.fixture(autouse=True, scope="session")
def runner() -> Iterator[None]:
    yield
    _runner.close()


@pytest.fixture(autouse=True)
def through_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    for original, made in twins._twins.items():
        for name in dir(original):
            if name.startswith("_"):
                continue
            twin = inspect.getattr_static(made, name, None)
            given = inspect.getattr_static(original, name)
            if _waits(twin):
                monkeypatch.setattr(original, name, _through(made, name, given))
