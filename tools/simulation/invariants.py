"""What must hold of the store itself: the audit, and that nothing is left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chaosrun import final
from chaosrun.actors import row
from chaosrun.history import Operation
from chaosrun.place import BROWSERS, FILTERS

from fdbqueue import Queue, list_queues
from fdbqueue.schema.keys import Kind
from fdbqueue.store import world

from .clients import MADE, Memory, SimulatedPlace
from .features import tidy

if TYPE_CHECKING:
    from .seam import Seam

DRAINER = "drain.0"
PAUSE_SECONDS = 5.0
"""How long to wait where nothing can be taken, and something is left."""
OF_THE_DEAD = ("request of the dead", "consumer dead")
"""Deviations that there may be until somebody finds out that a process is dead."""
DUE_MS = 2_000
"""Longer than it takes to ask a queue."""
MANY = 1_000
STAYS = {
    Kind.META: 1,
    Kind.TAIL: 10,
    Kind.SUBSCRIPTION: 2,
    Kind.CURSOR: 10,
    Kind.COUNT: 10,
    Kind.CHANGE: 3,
    # One for each operation that ran at once with others, until the next that sweeps.
    Kind.ONCE: 300,
    Kind.LIMITS: MANY,
    Kind.EVENT: MANY,
    # For a week after its end.
    Kind.GROUP: MANY,
    Kind.IN_FLIGHT: 1,
    Kind.CANCELS: 1,
    Kind.PLANNER: 1,
}
"""How many rows of each kind a queue keeps without messages, at most."""
UNTIL_ONE_MACHINE = (".0", "connection", "fetcher")
"""The ends of the names of threads that ask too often until "One way for a consumer: one request,
one machine, one combiner, one worker": who waits in line, and two of a worker."""
UNTIL_THE_AGENDA = (Kind.RESULT, Kind.RESULT_END, Kind.DEDUP)
"""What stays until "One end: settle, the agenda, work with a budget"."""
UNSEEN = 3
"""Attempts of a queue that may fail without a trace: a lease that a late commit has granted may be
unknown to who asked for it."""
BEATS = "extender"
"""In the name of the thread of a worker that gives signs of life."""
ASKING_SECONDS = 10.0


def queues(place: SimulatedPlace) -> list[Queue]:
    """All queues of a run that there are."""
    made = [place.made] if MADE in list_queues(place.db, root=place.root) else []
    return [*place.queues.values(), place.callbacks, place.mixed, place.target, *made]


def audit(place: SimulatedPlace, *, at_rest: bool = False) -> list[str]:
    """What ``verify`` finds, at one moment.

    at_rest: whether those that a killed process left must be gone, too.
    """
    found = []
    for queue in queues(place):
        verified = queue.admin.verify(place.db)
        found += [
            f"verify: {queue.name}: {each}"
            for each in verified.deviations
            if at_rest or each.kind not in OF_THE_DEAD
        ]
    return found


def drain(place: SimulatedPlace, recorder: Memory) -> None:
    """Take all that can be taken, from all queues in turns: a message of one may have what others
    wait for. Nobody sweeps; whoever receives tidies."""
    tidy(place)
    for browser in BROWSERS:
        final.look_to_the_end(place, browser)
    while True:
        taken = 0
        for name, queue in place.queues.items():
            while found := _take(place, recorder, name, queue):
                taken += found
            _nothing_due(place, queue)
        for queue in (place.mixed, place.target, place.made):
            while held := queue.receive_many(place.db, 200):
                queue.ack(place.db, held)
                taken += len(held)
            _nothing_due(place, queue)
        if not taken:
            if not any(_left(place, queue) for queue in queues(place)):
                break
            world.sleep(PAUSE_SECONDS)
    for queue in queues(place):
        while queue.admin.evict(place.db):
            pass
        # Who waits does away with a leader that is dead.
        queue.receive(place.db, wait=0.1)
    for taker in FILTERS:
        place.filter(taker).receive(place.db, wait=0.1)


def _nothing_due(place: SimulatedPlace, queue: Queue) -> None:
    """Whoever is told that a queue is empty, is when nothing is due any more."""
    since = world.time() * 1000 - DUE_MS
    for each in queue.messages(place.db, "delayed", 1000):
        if each.due_at_ms is not None and each.due_at_ms < since:
            raise AssertionError(f"false empty: {queue.name}: {each.id} has been due")


def _take(place: SimulatedPlace, recorder: Memory, name: str, queue: Queue) -> int:
    n = recorder.begin(DRAINER, "receive", name, wait=0, limit=100, drains=True)
    held = queue.receive_many(place.db, 100)
    recorder.end(DRAINER, n, result=[row(one) for one in held])
    if held:
        tags = [one.payload.decode() for one in held]
        n = recorder.begin(DRAINER, "ack", name, tags=tags)
        queue.ack(place.db, held)
        recorder.end(DRAINER, n)
    return len(held)


def left(place: SimulatedPlace) -> list[str]:
    """The queues of which something may still be delivered."""
    return [f"{each.name} {each.depth(place.db)}" for each in queues(place) if _left(place, each)]


def _left(place: SimulatedPlace, queue: Queue) -> bool:
    """Whether something of a queue may still be delivered."""
    depth = queue.depth(place.db)
    return depth.ready + depth.leased + depth.delayed > 0


def lost_attempts(history: list[Operation]) -> list[str]:
    """Messages with more failed attempts than times that somebody may have begun with them.

    Only who takes a message alone begins with it. Whoever asked, and does not know the answer, may
    have begun with one.
    """
    begun: Counter[tuple[str, str]] = Counter()
    died: Counter[str] = Counter()
    taken = []
    for one in history:
        if one.queue == "worked":
            continue  # Its workers begin out of sight.
        rows = one.result or [] if one.name == "receive" else []
        alone = one.what.get("limit", 1) == 1 or len(rows) == 1
        if one.name == "receive" and not one.ok:
            died[one.queue] += 1
        if one.name == "receive" and alone:
            begun.update((one.queue, tag) for tag, *_ in rows)
        begun.update((one.queue, tag) for tag in one.what.get("tags", ()) if one.name == "fail")
        taken += [(one, tag, attempt, alone) for tag, _, _, attempt, *_ in rows]
    found: dict[str, dict[str, int]] = {}
    for one, tag, attempt, alone in taken:
        more = attempt - 1 - (begun[one.queue, tag] - alone)
        if more > found.setdefault(one.queue, {}).get(tag, 0):
            found[one.queue][tag] = more
    return [
        f"attempts lost: {queue}: {of_tag}"
        for queue, of_tag in found.items()
        if sum(of_tag.values()) > died[queue] + UNSEEN
    ]


def purge(place: SimulatedPlace) -> None:
    """Remove the dead letters, with all that they keep."""
    for queue in queues(place):
        queue.purge(place.db, states="dead")


def asked(seam: Seam, seconds: float, *, known: bool) -> list[str]:
    """Who has asked the store too often in so many seconds without messages.

    known: whether those count who are known to.
    """
    spared = () if known else UNTIL_ONE_MACHINE
    return [
        f"idle: {name} asks the store every {seconds / count:.1f} s"
        for name, count in sorted(seam.asked.items())
        if BEATS not in name and count > seconds / ASKING_SECONDS and not name.endswith(spared)
    ]


def rows_left(place: SimulatedPlace, *, known: bool) -> list[str]:
    """Rows that do not belong to a queue without messages.

    known: whether those count that are known to stay.
    """
    found = []
    for queue in queues(place):
        for kind in Kind:
            every = queue._keys.kind(kind)
            count = len(list(place.db.get_range(every.start, every.stop, limit=1000)))
            if count > STAYS.get(kind, 0) and (known or kind not in UNTIL_THE_AGENDA):
                found.append(f"left: {queue.name}: {count} rows of {kind.name}")
    return found
