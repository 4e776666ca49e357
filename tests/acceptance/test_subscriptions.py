"""Subscriptions when everything happens at once: producers, takers that give back, and browsers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.values.model import Position
from tests.acceptance.programs import subscriber
from tests.acceptance.running import Programs

PRODUCERS = 3
EACH = 60
THIRD = PRODUCERS * EACH // 3
ROLES = [
    *[("produce", seed, EACH) for seed in range(PRODUCERS)],
    ("acquire:eu", 1, 2 * THIRD),
    ("acquire:eu", 2, 2 * THIRD),
    ("acquire:us", 3, 2 * THIRD),
    ("browse:as", 1, THIRD),
    ("browse:as", 2, THIRD),
]
Run = Callable[[], list[list[str]]]


@pytest.fixture(params=["threads", "processes"])
def run(
    request: pytest.FixtureRequest,
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue,
    programs: Programs,
) -> Run:
    """Plays all roles at once; returns what each of them reports."""

    def threads() -> list[list[str]]:
        with ThreadPoolExecutor(len(ROLES)) as pool:
            return list(pool.map(lambda role: subscriber.run(db, queue, *role), ROLES))

    def processes() -> list[list[str]]:
        started = [
            programs.start("subscriber.py", space.key().hex(), queue.name, *role) for role in ROLES
        ]
        return [json.loads(printed) for printed in programs.finish(started)]

    return threads if request.param == "threads" else processes


@pytest.mark.promise(7)
def test_each_browser_sees_each_message_once_and_each_match_is_taken_once(
    db: fdb.Database, queue: Queue, run: Run
) -> None:
    # When producers, takers and browsers work at the same time
    *produced, europe, europe_too, states, one, other = run()

    # Then each match was acknowledged once, by one of the consumers of its subscription
    ids = {region: [] for region in subscriber.REGIONS}  # type: dict[str, list[str]]
    for reported in produced:
        for n, message_id in enumerate(reported):
            ids[subscriber.REGIONS[n % 3]].append(message_id)
    assert Counter(europe + europe_too) == Counter(ids["eu"])
    assert Counter(states) == Counter(ids["us"])

    # And each browser saw each of its messages once, in order within a level
    for seen in (one, other):
        assert Counter(seen) == Counter(ids["as"])
        for level in range(10):
            of_level = [Position.from_id(i) for i in seen if Position.from_id(i).level == level]
            assert of_level == sorted(of_level)
    depth = queue.depth(db)
    assert (depth.done, depth.ready, depth.leased) == (2 * THIRD, THIRD, 0)
