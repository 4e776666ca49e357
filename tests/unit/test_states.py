from __future__ import annotations

from fdbqueue.values.model import Depth
from fdbqueue.values.states import TRANSITIONS, State, exactly

ENDS = {State.DONE, State.EXPIRED, State.PURGED}


def test_every_state_can_be_reached_and_ends_are_final() -> None:
    ways = [(waits, failed) for waits in (False, True) for failed in (False, True)]
    reached = {
        exactly(edge.target, waits=waits, failed=failed)
        for edge in TRANSITIONS
        for waits, failed in ways
    }
    assert reached == set(State)
    assert not ENDS & {edge.source for edge in TRANSITIONS}


def test_every_state_has_a_counter() -> None:
    assert {state.value for state in State} <= set(Depth.__struct_fields__)


def test_transitions_have_names_of_their_own() -> None:
    assert len({edge.name for edge in TRANSITIONS}) == len(TRANSITIONS)
