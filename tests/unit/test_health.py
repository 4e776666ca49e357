"""What a worker answers to probes, by what its threads have done."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from fdbqueue.errors import InvalidArgument
from fdbqueue.store.connection import Connection, ConnectionState
from fdbqueue.worker.health import Loop, Probes, check_address
from fdbqueue.worker.health.loops import TURN_SECONDS

LATE = TURN_SECONDS + 1


class Life:
    """A worker with a thread that takes messages and one that extends leases, as probes see it."""

    def __init__(self) -> None:
        self.takes = Loop("takes from orders", takes=True)
        self.extends = Loop("extends leases")
        no_database: Any = None
        self.connection = Connection(no_database)
        self.stopping = False
        self.probes = Probes([self.takes, self.extends], self.connection, lambda: self.stopping)

    def pass_time(self, seconds: float, *turn: Loop) -> None:
        """Let time pass, in which the connection asks, and these loops turn."""
        for loop in (self.takes, self.extends):
            if loop not in turn:
                loop.turned_at -= seconds
                loop.took_at -= seconds
        self.connection.since -= seconds

    def become(self, state: ConnectionState) -> None:
        self.connection.state, self.connection.since = state, time.monotonic()

    @property
    def dead(self) -> str | None:
        return self.probes.dead(time.monotonic())

    @property
    def unready(self) -> str | None:
        return self.probes.unready(time.monotonic())


@pytest.fixture
def life() -> Life:
    return Life()


def test_a_worker_lives_from_its_start_and_is_ready_after_it_has_first_looked(life: Life) -> None:
    assert life.dead is None
    assert life.unready == "the thread that takes from orders has not done so yet"
    life.takes.took()
    assert life.unready is None


@pytest.mark.parametrize("stuck", ["takes", "extends"])
def test_a_thread_that_does_not_come_round_is_dead_and_not_ready(life: Life, stuck: str) -> None:
    life.takes.took()
    loops = {"takes": life.takes, "extends": life.extends}
    turning = [loop for name, loop in loops.items() if name != stuck]
    life.pass_time(TURN_SECONDS - 1, *turning)
    assert life.dead is None
    life.pass_time(2, *turning)
    assert life.dead == f"the thread that {loops[stuck].does} has not come round for 121 s"
    assert life.unready is not None


def test_a_thread_that_rests_or_whose_handler_takes_long_lives(life: Life) -> None:
    life.takes.turn(math.inf)
    life.extends.turn(600)
    life.pass_time(600)
    assert life.dead is None
    life.takes.turn()
    life.pass_time(LATE, life.takes)
    assert life.dead is not None


def test_nobody_dies_of_a_store_that_is_away_and_nobody_is_ready(life: Life) -> None:
    life.takes.took()
    life.become(ConnectionState.SUSPENDED)
    life.pass_time(10 * LATE)
    assert life.dead is None
    assert life.unready == "the store does not answer"
    life.become(ConnectionState.LOST)
    assert life.dead is None
    life.become(ConnectionState.RECONNECTED)
    assert life.dead is None
    assert life.unready == "the thread that takes from orders has not done so yet"
    life.takes.took()
    assert life.unready is None


def test_a_thread_that_does_not_come_round_after_the_store_came_back_is_dead(life: Life) -> None:
    life.become(ConnectionState.SUSPENDED)
    life.pass_time(10 * LATE)
    life.become(ConnectionState.RECONNECTED)
    life.pass_time(LATE)
    assert life.dead is not None


@pytest.mark.parametrize("state", ConnectionState)
def test_whoever_does_not_ask_the_store_any_more_is_dead(
    life: Life, state: ConnectionState
) -> None:
    life.become(state)
    life.connection.asked_at -= LATE
    assert life.dead == "nothing has asked the store for 121 s"


def test_a_worker_that_cannot_take_lives_and_says_why_it_is_not_ready(life: Life) -> None:
    life.takes.took()
    life.takes.failed("there is no queue 'orders'")
    assert life.dead is None
    assert life.unready == "the thread that takes from orders cannot: there is no queue 'orders'"
    life.takes.took()
    assert life.unready is None


def test_a_worker_that_stops_lives_and_is_not_ready(life: Life) -> None:
    life.takes.took()
    life.stopping = True
    life.pass_time(LATE)
    assert life.dead is None
    assert life.unready == "the worker is stopping"


def test_a_thread_that_has_ended_as_it_should_is_not_missed(life: Life) -> None:
    life.takes.end()
    life.pass_time(LATE, life.extends)
    assert life.dead is None
    assert life.unready is None


@pytest.mark.parametrize(
    "given",
    [8080, "127.0.0.1:8080", ("", 8080), ("localhost", "8080"), ("localhost", -1),
     ("localhost", 65_536), ("localhost", True), ("localhost",), ("::1", 1, 0, 0), (None, 1)],
)  # fmt: skip
def test_an_address_is_a_host_and_a_port(given: object) -> None:
    with pytest.raises(InvalidArgument, match="must be a host and a port"):
        check_address("health", given)


def test_an_address_may_be_of_either_version() -> None:
    assert check_address("health", ["::1", 0]) == ("::1", 0)
    assert check_address("health", ("0.0.0.0", 65_535)) == ("0.0.0.0", 65_535)
