from __future__ import annotations

import pytest

from fdbqueue import QueueOptions
from fdbqueue.messages.settle import Lapse, Refuse, Return, Verdict, decide, unfit
from fdbqueue.schema.envelope import Envelope, open_envelope
from fdbqueue.schema.scope import StoredMessage
from fdbqueue.values.model import Position
from fdbqueue.values.states import ENDINGS, End, State

NOW_MS = 1_000_000
OPTIONS = QueueOptions(max_attempts=2)
NEW = Envelope(b"", NOW_MS)
LAST = Envelope(b"", NOW_MS, attempts=1)
OVER = Envelope(b"", NOW_MS, expires_at_ms=NOW_MS)
STOPPED = Envelope(b"", NOW_MS, attempts=1, cancelled=True)
OFTEN = Envelope(b"", NOW_MS, released=50)
KILLER = Envelope(b"", NOW_MS, deaths=2)
LOST, DIED = (Lapse(begun, NOW_MS - 4_000) for begun in (False, True))


def message(envelope: Envelope) -> StoredMessage:
    return StoredMessage(Position(0, 1, b"random"), envelope)


@pytest.mark.parametrize(
    ("envelope", "verdict", "end"),
    [
        (NEW, None, End.DONE),
        (OVER, None, End.DONE),
        (STOPPED, None, End.DONE),
        (NEW, Return(), End.RETURN),
        (NEW, Return(5.0), End.DELAY),
        (OFTEN, Return(), End.DELAY),
        (OFTEN, Return(0.0), End.RETURN),
        (NEW, Return(0.0, "broken"), End.RETURN),
        (LAST, Return(0.0, "broken"), End.REJECT),
        (LAST, Return(0.0, ""), End.REJECT),
        (LAST, Return(0.0), End.RETURN),
        (OVER, Return(5.0), End.EXPIRE),
        (STOPPED, Return(0.0, "broken"), End.CANCEL),
        (NEW, Refuse("bad"), End.REJECT),
        (OVER, Refuse("bad"), End.REJECT),
        (NEW, Refuse("bad", drop=True), End.DROP),
        (STOPPED, Refuse("bad"), End.CANCEL),
        (NEW, LOST, End.LAPSE),
        (LAST, LOST, End.LAPSE),
        (LAST, DIED, End.REST),
        (KILLER, LOST, End.LAPSE),
        (KILLER, DIED, End.REJECT),
        (OVER, LOST, End.EXPIRE),
        (STOPPED, DIED, End.CANCEL),
    ],
)
def test_a_verdict_and_the_message_say_how_it_leaves(
    envelope: Envelope, verdict: Verdict | Lapse | None, end: End
) -> None:
    assert decide(OPTIONS, message(envelope), verdict, NOW_MS).end is end
    assert (State.LEASED, end) in ENDINGS


def test_only_failures_count() -> None:
    verdicts = (Return(), Return(error="broken"), LOST, DIED)
    left = [decide(OPTIONS, message(NEW), verdict, NOW_MS).message for verdict in verdicts]
    assert [each.envelope.attempts for each in left] == [0, 1, 0, 0]
    assert [each.envelope.deaths for each in left] == [0, 0, 0, 1]


def test_what_comes_back_from_the_dead_rests_longer_each_time_from_the_end_of_the_lease() -> None:
    options = QueueOptions(max_deaths=None, backoff=None)
    ends = [
        decide(options, message(Envelope(b"", NOW_MS, deaths=deaths)), DIED, NOW_MS).due_ms - NOW_MS
        for deaths in (0, 1, 2, 5, 6, 90)
    ]
    assert ends == [6_000, 16_000, 36_000, 316_000, 596_000, 596_000]


@pytest.mark.parametrize(
    ("envelope", "end"), [(OVER, End.EXPIRE), (open_envelope(b"?"), End.REJECT)]
)
def test_what_waits_leaves_once_it_may_not_be_delivered(envelope: Envelope, end: End) -> None:
    found = unfit(message(envelope), NOW_MS)
    assert found is not None
    assert found.end is end
    assert {(State.READY, end), (State.SCHEDULED, end)} <= ENDINGS.keys()
    assert unfit(message(NEW), NOW_MS) is None
