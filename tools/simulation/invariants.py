"""What must hold of the store itself: the audit, and that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaosrun import final
from chaosrun.actors import row
from chaosrun.place import BROWSERS

import fdbqueue
from fdbqueue import Queue
from fdbqueue.schema.keys import Kind
from fdbqueue.store import world

from .clients import Memory, SimulatedPlace

if TYPE_CHECKING:
    from .run import Run

DRAINER = "drain.0"
PAUSE_SECONDS = 5.0
"""How long to wait where nothing can be taken, and something is left."""
OF_THE_DEAD = ("request of the dead", "consumer dead")
"""Deviations that there may be until somebody finds out that a process is dead."""
STAYS = {
    Kind.META,
    Kind.TAIL,
    Kind.SUBSCRIPTION,
    Kind.CURSOR,
    Kind.COUNT,
    Kind.CHANGE,
    Kind.ONCE,
    Kind.DEAD,
    Kind.LIMITS,
    Kind.EVENT,
    Kind.IN_FLIGHT,
    Kind.CANCELS,
}
"""What a queue keeps without messages, but its dead letters and what these keep."""


def queues(place: SimulatedPlace) -> list[Queue]:
    """All queues of a run."""
    return [*place.queues.values(), place.callbacks, place.mixed, place.target]


def audit(place: SimulatedPlace, *, at_rest: bool = False) -> list[str]:
    """What ``verify`` finds, at one moment.

    at_rest: whether those that a killed process left must be gone, too.
    """
    found = []
    for queue in queues(place):
        verified = fdbqueue.verify(place.db, queue)
        found += [
            f"verify: {queue.name}: {each}"
            for each in verified.deviations
            if at_rest or each.kind not in OF_THE_DEAD
        ]
    return found


def drain(place: SimulatedPlace, recorder: Memory) -> None:
    """Take all that can be taken, from all queues in turns: a message of one may have what others
    wait for. Nobody sweeps; whoever receives tidies."""
    for browser in BROWSERS:
        final.look_to_the_end(place, browser)
    while True:
        taken = sum(_take(place, recorder, name, queue) for name, queue in place.queues.items())
        for queue in (place.mixed, place.target):
            held = queue.receive_many(place.db, 100)
            queue.ack_many(place.db, held)
            taken += len(held)
        if not taken:
            if not any(_left(place, queue) for queue in queues(place)):
                break
            world.sleep(PAUSE_SECONDS)
    for queue in queues(place):
        while queue.evict(place.db):
            pass


def _take(place: SimulatedPlace, recorder: Memory, name: str, queue: Queue) -> int:
    n = recorder.begin(DRAINER, "receive", name, wait=0, limit=100, drains=True)
    held = queue.receive_many(place.db, 100)
    recorder.end(DRAINER, n, result=[row(one) for one in held])
    if held:
        tags = [one.payload.decode() for one in held]
        n = recorder.begin(DRAINER, "ack", name, tags=tags)
        queue.ack_many(place.db, held)
        recorder.end(DRAINER, n)
    return len(held)


def left(place: SimulatedPlace) -> list[str]:
    """The queues of which something may still be delivered."""
    return [f"{each.name} {each.depth(place.db)}" for each in queues(place) if _left(place, each)]


def _left(place: SimulatedPlace, queue: Queue) -> bool:
    """Whether something of a queue may still be delivered."""
    depth = queue.depth(place.db)
    return depth.ready + depth.leased + depth.delayed > 0


def idle_day(run: Run) -> list[str]:
    """A day without messages: what is asked of the store, and what is left in it."""
    return []
