"""What a stream has in hand, and giving it back when it does not run any more."""

from __future__ import annotations

from fdbqueue import Message, fdb
from fdbqueue.queue.bulk.planner import Mark, Planner

from .history import Recorder
from .place import STREAMED, Place

CONSUMER = "stream"


def messages_of(db: fdb.Database, run: Planner, mark: Mark) -> list[Message]:
    """The messages of a batch that is planned."""
    since = mark._replace(batch=mark.batch - 1)
    return [
        each.envelope.message(each.position)
        for piece in run.pieces(db, since, mark, 1)
        for page in run.read(db, piece)
        for each in page
    ]


def give_back(place: Place, recorder: Recorder, who: str) -> None:
    """Give back what the stream has in hand, and tell of it."""
    queue = place.queues[STREAMED]
    run = queue.plans.planner(CONSUMER)
    begin = run.begin(place.db)
    mark = run.next(place.db, begin, messages=1)
    held = messages_of(place.db, run, mark) if mark != begin else []
    tags = [each.payload.decode() for each in held]
    n = recorder.begin(who, "release", STREAMED, tags=tags)
    queue.plans.release(place.db, CONSUMER)
    recorder.end(who, n)
