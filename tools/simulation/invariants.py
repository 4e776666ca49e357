"""What must hold of the store itself: the audit, and that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workload.place import Place

from fdbqueue import Queue
from fdbqueue.consumers.receiving.waiting import BEAT_SECONDS
from fdbqueue.schema import due
from fdbqueue.schema.keys import KINDS, AgendaKeys, QueueKeys

if TYPE_CHECKING:
    from .seam import Seam

MANY = 1_000
LOOKS = 100
"""How often to look for messages in a queue that nobody has looked at for long."""
STAYS = {
    QueueKeys.meta: 1,
    QueueKeys.tail: 10,
    QueueKeys.subscription: 2,
    QueueKeys.cursor: 10,
    QueueKeys.count: 10,
    QueueKeys.change: 3,
    # One for each operation that ran at once with others, until the next that sweeps.
    QueueKeys.once: 300,
    QueueKeys.limits: MANY,
    QueueKeys.event: MANY,
    # For a week after its end.
    QueueKeys.group: MANY,
    # One for each rank, until its time.
    QueueKeys.earliest: 20,
    QueueKeys.idle: 1,
    QueueKeys.in_flight: 1,
    QueueKeys.pace: 1,
    QueueKeys.cancels: 1,
    QueueKeys.planner: 1,
}
"""How many rows of each kind a queue keeps without messages, at most."""
UNTIL_LATER = (QueueKeys.delayed, QueueKeys.result, QueueKeys.dedup)
"""What stays until the agenda says that it goes."""
BEATS = "extender"
"""In the name of the thread of a worker that gives signs of life."""
IN_LINE = ".0"
"""The end of the name of a consumer that stands in line, and gives signs of life by itself."""
ASKING_SECONDS = 10.0


def purge(place: Place) -> None:
    """Remove the dead letters, with all that they keep, and the callbacks."""
    for queue in place.every:
        queue.purge(place.db, states="dead")
    place.callbacks.purge(place.db, states=["ready", "waiting", "retrying", "scheduled"])


def asked(seam: Seam, seconds: float) -> list[str]:
    """Who has asked the store too often in so many seconds without messages, beside signs of
    life."""
    return [
        f"idle: {name} asks the store every {seconds / count:.1f} s"
        for name, count in sorted(seam.asked.items())
        if BEATS not in name
        and count - seconds / BEAT_SECONDS * name.endswith(IN_LINE) > seconds / ASKING_SECONDS
    ]


def agendas(place: Place) -> dict[bytes, AgendaKeys]:
    """By what their keys of EARLIEST begin with: those of the queues, and of the limits."""
    queues = (*place.queues.values(), *place.any.values(), place.sourced, place.callbacks)
    found = [*(queue._keys for queue in queues), place.callbacks._root_keys.limits]
    return {keys.earliest.prefix: keys for keys in found}


def overlooked(place: Place, keys: AgendaKeys) -> list[str]:
    """Ranks of an agenda at which nobody looks when their first entry is due."""
    tr = place.db.create_transaction()
    known = {each.rank: each.from_ms for each in due.ranks(keys, due.reads(tr, keys))}
    found, every = [], keys.delayed.rows
    while row := next(iter(tr.get_range(every.start, every.stop, limit=1)), None):
        rank, due_ms = due.parse(keys, row.key)
        every = slice(keys.delayed.under(rank).stop, every.stop)
        if known.get(rank, due_ms + 1) > due_ms:
            found.append(f"agenda: rank {rank}: at {known.get(rank)}, one is due at {due_ms}")
    return found


def _dues(place: Place, queue: Queue) -> list[int]:
    """When the entries of the agenda of a queue are due."""
    every = queue._keys.delayed.rows
    rows = place.db.get_range(every.start, every.stop)
    return [due.parse(queue._keys, kv.key)[1] for kv in rows]


def rows_left(place: Place) -> list[str]:
    """Rows that do not belong to a queue without messages, once somebody has looked for some."""
    found = []
    for queue in place.every:
        now_ms = queue._clock.now_ms(place.db)
        for _ in range(LOOKS):
            dues = _dues(place, queue)
            if not any(due_ms < now_ms for due_ms in dues):
                break
            queue.receive(place.db)
        found += [f"left: {queue.name}: one was due at {each}" for each in dues if each < now_ms]
        later = MANY * any(due_ms > now_ms for due_ms in dues)
        for kind in KINDS:
            every = queue._keys.kind(kind)
            count = len(list(place.db.get_range(every.start, every.stop, limit=1000)))
            if count > STAYS.get(kind, 0) + later * (kind in UNTIL_LATER):
                found.append(f"left: {queue.name}: {count} rows of {kind.name}")
    return found
