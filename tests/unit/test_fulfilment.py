from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.consumers.leader import AfterRound, decide


@pytest.mark.parametrize(
    ("answered", "done", "unserved", "served", "crowd", "exhausted", "step"),
    [
        (False, False, 0, 0, 0, True, AfterRound.WAIT),
        (False, False, 3, 2, 0, True, AfterRound.WAIT),
        (False, False, 3, 100, 0, False, AfterRound.GO_ON),
        (True, False, 0, 5, 0, False, AfterRound.GO_ON),
        (True, False, 2, 5, 0, False, AfterRound.GO_ON),
        (True, False, 2, 5, 0, True, AfterRound.HAND_OVER),
        (True, True, 1, 5, 0, False, AfterRound.HAND_OVER),
        (True, True, 0, 5, 0, False, AfterRound.LEAVE),
        (True, False, 0, 0, 0, False, AfterRound.LEAVE),
        (True, False, 0, 0, 0, True, AfterRound.LEAVE),
        (True, False, 0, 0, 9, False, AfterRound.LINGER),
        (True, True, 0, 0, 9, False, AfterRound.LINGER),
    ],
)
def test_what_a_leader_does_next(
    answered: bool,
    done: bool,
    unserved: int,
    served: int,
    crowd: int,
    exhausted: bool,
    step: AfterRound,
) -> None:
    assert step is decide(
        answered=answered,
        done=done,
        unserved=unserved,
        served=served,
        crowd=crowd,
        exhausted=exhausted,
    )


@given(
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 5),
    st.booleans(),
)
def test_a_leader_never_leaves_others_behind_without_one(
    answered: bool, done: bool, unserved: int, served: int, crowd: int, exhausted: bool
) -> None:
    step = decide(
        answered=answered,
        done=done,
        unserved=unserved,
        served=served,
        crowd=crowd,
        exhausted=exhausted,
    )
    assert not (step is AfterRound.LEAVE and unserved)
    assert not (step is AfterRound.HAND_OVER and not unserved)
    assert not (step is AfterRound.WAIT and answered), (
        "it does not wait with a message in its hands"
    )
