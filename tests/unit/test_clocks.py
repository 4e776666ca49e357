"""What the notes of a cluster's time keeper say, and which wall clocks they bear out."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from fdbqueue.store import clocks, world
from fdbqueue.store.clocks import BELIEVED_MS, DOUBTED_SECONDS, DatabaseTime, TimeKeeper, told

NOTED = 1_800_000_000
SECOND = 1_000_000


def test_a_note_is_carried_on_by_its_version() -> None:
    found = told([(NOTED, 500 * SECOND)], 507 * SECOND, at=1.0)

    assert found == DatabaseTime(NOTED * 1000 + 7_000, NOTED * 1000 + 7_000, 1.0)
    assert found.fresh


def test_no_note_says_nothing() -> None:
    assert told([], 507 * SECOND, at=1.0) is None
    assert told([(NOTED, 600 * SECOND)], 507 * SECOND, at=1.0) is None, "of another cluster"


def test_the_note_of_the_newest_version_counts_and_not_that_of_the_latest_clock() -> None:
    tomorrow = (NOTED + 86_400, 100 * SECOND)

    found = told([tomorrow, (NOTED, 500 * SECOND)], 501 * SECOND, at=1.0)

    assert found is not None
    assert found.most_ms == NOTED * 1000 + 1_000


@pytest.mark.parametrize(
    ("off_ms", "believed"),
    [(0, True), (BELIEVED_MS, True), (-BELIEVED_MS, True), (61_000, False), (-61_000, False)],
)
def test_a_wall_clock_is_believed_within_a_minute(off_ms: int, believed: bool) -> None:
    assert DatabaseTime(1_000_000, 1_000_000, at=0.0).believes(1_000_000 + off_ms) is believed


def test_a_jump_of_versions_condemns_no_clock_that_was_right_before_it() -> None:
    """A recovery advances versions by a hundred seconds; the next note is some seconds away."""
    found = told([(NOTED, 500 * SECOND)], 605 * SECOND, at=0.0)

    assert found is not None
    assert not found.fresh
    assert found.believes(NOTED * 1000 + 5_000)
    assert found.believes(NOTED * 1000 + 105_000)
    assert not found.believes(NOTED * 1000 + 86_400_000)


def test_the_monotonic_clock_carries_on_what_was_told() -> None:
    assert DatabaseTime(5_000, 5_000, at=10.0).later(12.5) == DatabaseTime(7_500, 7_500, at=12.5)


def test_a_database_that_said_nothing_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cluster has no note yet, and a busy one does not answer in time."""
    now = 100.0
    answers = [None, None, DatabaseTime(5_000_000, 5_000_000, at=now + 2 * DOUBTED_SECONDS)]
    monkeypatch.setattr(world, "monotonic", lambda: now)
    monkeypatch.setattr(clocks, "_read", lambda *_: answers.pop(0))
    keeper, db, wrong = TimeKeeper(), MagicMock(), 86_400_000

    for left in (2, 1):
        assert keeper.now_ms(db, wrong) == wrong
        assert keeper.now_ms(db, wrong) == wrong
        assert len(answers) == left, "it is asked once in this time"
        now += DOUBTED_SECONDS
    assert keeper.now_ms(db, wrong) == 5_000_000
