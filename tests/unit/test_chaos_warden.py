"""What the warden of chaos runs finds wrong with a limit that queues share."""

from __future__ import annotations

import pytest
from chaosrun.warden import wrong_shared

from fdbqueue.values.limits import LimitState


@pytest.mark.parametrize(
    ("slots", "paused", "out", "waiting", "most", "found"),
    [
        (3, False, 3, 5, 0, None),
        (3, False, 2, 0, 0, None),
        (3, False, 4, 5, 5, None),
        (3, True, 1, 5, 0, None),
        (None, False, 9, 0, 0, None),
        (3, False, 4, 0, 0, "4 are out, and 3 may be"),
        (3, False, 6, 0, 5, "6 are out, and 5 may be"),
        (3, False, 2, 5, 0, "5 wait, and 2 of 3 are out"),
        (None, False, 0, 5, 0, "5 wait, and 0 of None are out"),
    ],
)
def test_the_warden_finds_what_a_shared_limit_does_not_allow(
    slots: int | None, paused: bool, out: int, waiting: int, most: int, found: str | None
) -> None:
    held = {n: ("queue", str(n)) for n in range(out)}
    assert wrong_shared(LimitState("api", "a", slots, paused, held, waiting, [], {}), most) == found
