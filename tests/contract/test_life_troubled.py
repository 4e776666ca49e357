"""The life model again, with several handles and injected faults: nothing of it may show.

Each operation goes through one of three handles, which learn of what the others change as handles
of other processes do. Commits conflict, or have an unknown outcome; on the embedded engine reads
fail, too. All of that, and which handle is next, follows from one number of each run, so a run that
fails happens again as it was.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from fdbqueue import Queue
from fdbqueue.store import clocks
from fdbqueue.store.binding import DEFAULT, Engine
from fdbqueue.store.embedded import faults
from tests.contract.test_life_model import ORDERS, Life
from tests.flaky import CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase

pytestmark = pytest.mark.usefixtures("small_blocks")

COMMITS: tuple[str | None, ...] = (CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, *[None] * 12)
READS = {"too_old": 0.01, "future_version": 0.01, "behind": 0.01}
SELDOM = 10

TRACE: list[str] = []
"""What the runs have met, in order: which handle did what, and which faults there were."""


class Handles:
    """Several handles of one queue, of which each operation uses one at random."""

    def __init__(self, handles: list[Queue], source: random.Random) -> None:
        self._handles = handles
        self._source = source

    def __getattr__(self, name: str) -> Any:
        n = self._source.randrange(len(self._handles))
        TRACE.append(f"{name} of handle {n}")
        return getattr(self._handles[n], name)


class Troubled(Life):
    """One queue, three handles, and faults."""

    @initialize(
        expired=st.sampled_from(["drop", "dead"]),
        backoff=st.booleans(),
        elsewhere=st.booleans(),
        order=st.sampled_from(ORDERS),
        number=st.integers(0, 2**32 - 1),
    )
    def create(
        self,
        expired: str,
        backoff: bool,
        elsewhere: bool,
        order: tuple[str, ...],
        number: int = 0,
    ) -> None:
        super().create(expired, backoff, elsewhere, order)
        self.plain, self.source = self.db, random.Random(number)
        self.clock.now_ms(self.plain)  # Asked before there are faults.
        self.db = FlakyDatabase(self.plain, self.troubles())  # type: ignore[assignment]
        handles = [Queue("q", self.space, clock=self.clock) for _ in range(3)]
        self.queue = Handles(handles, self.source)  # type: ignore[assignment]
        if DEFAULT.engine is Engine.EMBEDDED:
            faults.inject(number, READS)

    def troubles(self) -> Iterator[str | None]:
        while True:
            fault = self.source.choice(COMMITS)
            TRACE.append(str(fault))
            yield fault

    def teardown(self) -> None:
        if faults.active is not None:
            TRACE.extend(str(each) for each in faults.active.injected)
            faults.stop()
        if hasattr(self, "plain"):
            self.db = self.plain
        super().teardown()

    @rule(seconds=st.sampled_from([60.0, 300.0]))
    def change(self, seconds: float) -> None:
        """One handle changes what the others must follow."""
        self.queue.set_options(self.db, dedup_window=seconds)
        assert self.queue.options(self.db).dedup_window == seconds


def run(examples: int, number: int) -> None:
    machine = seed(number)(Troubled)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            database=None,
            deadline=None,  # Also in a process that has not loaded the profile of the tests.
            phases=(Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.long
@pytest.mark.promise(1)
def test_several_handles_under_faults_show_the_life_of_the_model() -> None:
    TRACE.clear()
    run(15, 1)
    met = Counter(TRACE)
    assert all(met[str(fault)] >= SELDOM for fault in COMMITS), met


def replay() -> None:
    """Print what a run meets."""
    # When the store is asked what time it is goes by the clock: here it says nothing.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "_read", lambda *_: None)
        run(3, 2)
    print(json.dumps(TRACE))


@pytest.mark.long
def test_a_run_is_replayed_from_its_seed(embedded: bool) -> None:
    if not embedded:
        pytest.skip("a cluster decides by itself when a transaction is tried again")
    # In processes of their own, as whoever repeats a failure does.
    program = f"from {__name__} import replay; replay()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first, second = (
        json.loads(subprocess.check_output([sys.executable, "-c", program], env=environment))
        for _ in range(2)
    )
    assert first == second
    assert any("Injection" in each for each in first)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10, 20))
def test_several_handles_under_faults_for_long(number: int) -> None:
    run(300, number)
