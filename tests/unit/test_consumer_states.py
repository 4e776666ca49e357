from __future__ import annotations

from fdbqueue.consumers.consumer_states import MOVES, ConsumerState


def test_every_list_can_be_reached_and_left() -> None:
    assert {move.target for move in MOVES} == {*ConsumerState, None}
    assert {move.source for move in MOVES} == {*ConsumerState, None}


def test_who_only_looks_never_moves_to_a_list_of_those_who_take() -> None:
    for move in MOVES:
        if move.source is ConsumerState.NON_ACQUIRING:
            assert move.target in (None, ConsumerState.NON_ACQUIRING)


def test_only_who_is_interested_is_notified() -> None:
    notified = [move.source for move in MOVES if move.name == "notify"]
    assert notified == [ConsumerState.INTERESTED]
