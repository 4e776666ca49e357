"""The steps of a consumer until it has its answer."""

from fdbqueue.consumers.receiving.steps import NEXT, TRANSITIONS, Event, Step


def test_what_follows_a_step_is_said_once() -> None:
    assert len(NEXT) == len(TRANSITIONS)
    assert {event for _, event in NEXT} == {*Event}


def test_every_step_is_reached_and_comes_to_the_end() -> None:
    def reached(step: Step) -> set[Step]:
        found = {step}
        while more := {each.target for each in TRANSITIONS if each.source in found} - found:
            found |= more
        return found

    assert reached(Step.TRY) == {*Step}
    assert all(Step.END in reached(step) for step in Step)


def test_whoever_is_taken_for_dead_in_line_tries_again() -> None:
    in_line = {*Step} - {Step.TRY, Step.END}
    assert {step for step, event in NEXT if event is Event.LOST} == in_line
    assert all(NEXT[step, Event.LOST] is Step.TRY for step in in_line)
