"""What the notes of a cluster's time keeper say, and which wall clocks they bear out."""

from __future__ import annotations

import pytest

from fdbqueue.store.clocks import BELIEVED_MS, Told, told

NOTED = 1_800_000_000
SECOND = 1_000_000


def test_a_note_is_carried_on_by_its_version() -> None:
    found = told([(NOTED, 500 * SECOND)], 507 * SECOND, at=1.0)

    assert found == Told(NOTED * 1000 + 7_000, NOTED * 1000 + 7_000, 1.0)
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
    assert Told(1_000_000, 1_000_000, at=0.0).believes(1_000_000 + off_ms) is believed


def test_a_jump_of_versions_condemns_no_clock_that_was_right_before_it() -> None:
    """A recovery advances versions by a hundred seconds; the next note is some seconds away."""
    found = told([(NOTED, 500 * SECOND)], 605 * SECOND, at=0.0)

    assert found is not None
    assert not found.fresh
    assert found.believes(NOTED * 1000 + 5_000)
    assert found.believes(NOTED * 1000 + 105_000)
    assert not found.believes(NOTED * 1000 + 86_400_000)


def test_the_monotonic_clock_carries_on_what_was_told() -> None:
    assert Told(5_000, 5_000, at=10.0).later(12.5) == Told(7_500, 7_500, at=12.5)
