from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.consumers.leader import AfterRound, LeaderStage, decide

UNANSWERED, ANSWERED, DONE, OVERDUE = LeaderStage


@pytest.mark.parametrize(
    ("stage", "unserved", "served", "crowd", "exhausted", "step"),
    [
        (UNANSWERED, 0, 0, 0, True, AfterRound.WAIT),
        (UNANSWERED, 3, 2, 0, True, AfterRound.WAIT),
        (UNANSWERED, 3, 100, 0, False, AfterRound.GO_ON),
        (ANSWERED, 0, 5, 0, False, AfterRound.GO_ON),
        (ANSWERED, 2, 5, 0, False, AfterRound.GO_ON),
        (ANSWERED, 2, 5, 0, True, AfterRound.HAND_OVER),
        (DONE, 1, 5, 0, False, AfterRound.HAND_OVER),
        (DONE, 0, 5, 0, False, AfterRound.LEAVE),
        (ANSWERED, 0, 0, 0, False, AfterRound.LEAVE),
        (ANSWERED, 0, 0, 0, True, AfterRound.LEAVE),
        (ANSWERED, 0, 0, 9, False, AfterRound.LINGER),
        (DONE, 0, 0, 9, False, AfterRound.LINGER),
        (OVERDUE, 0, 0, 9, False, AfterRound.LEAVE),
        (OVERDUE, 1, 0, 9, False, AfterRound.HAND_OVER),
    ],
)
def test_what_a_leader_does_next(
    stage: LeaderStage,
    unserved: int,
    served: int,
    crowd: int,
    exhausted: bool,
    step: AfterRound,
) -> None:
    assert step is decide(
        stage,
        unserved=unserved,
        served=served,
        crowd=crowd,
        exhausted=exhausted,
    )


@given(
    st.sampled_from(LeaderStage),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
)
def test_a_leader_never_leaves_others_behind_without_one(
    stage: LeaderStage, unserved: int, served: int, crowd: int, exhausted: bool
) -> None:
    step = decide(
        stage,
        unserved=unserved,
        served=served,
        crowd=crowd,
        exhausted=exhausted,
    )
    assert not (step is AfterRound.LEAVE and unserved)
    assert not (step is AfterRound.HAND_OVER and not unserved)
    assert not (step is AfterRound.WAIT and stage), "it does not wait with a message in its hands"
