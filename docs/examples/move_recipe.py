"""Moves a queue of one of FoundationDB's recipes into a queue of fdbqueue, in the same database.

Usage: move_recipe.py KIND QUEUE ELEMENT...

KIND is queue, priority or staged. The elements are the texts of the tuple that makes the recipe's
subspace. Call ``move`` from a program of your own for other subspaces, values and priorities.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import fdbqueue
from fdbqueue import NewMessage, Queue, fdb, transactional

MAX_ROWS = 500
MAX_BYTES = 1_000_000

Made = Callable[[tuple[Any, ...], bytes], NewMessage]
"""Makes a message of a row: of the elements of its key behind the subspace, and its value."""


def plain(place: tuple[Any, ...], value: bytes) -> NewMessage:
    """A row of the queue recipe: (index, random) -> payload."""
    return NewMessage(value)


def by_priority(place: tuple[Any, ...], value: bytes) -> NewMessage:
    """A row of the priority queue recipe: (priority, count, random) -> payload, lower first."""
    return NewMessage(value, priority=max(0, 9 - place[0]))


def packed(place: tuple[Any, ...], value: bytes) -> NewMessage:
    """A row of the staged layer: (index, random) -> a tuple of the payload."""
    return NewMessage(fdb.tuple.unpack(value)[0])


def move(db: fdb.Database, queue: Queue, space: fdb.Subspace, made: Made) -> None:
    """Move all rows of a subspace, in the order of their keys.

    A row leaves the subspace in the transaction that enqueues its message. So it moves exactly
    once, however often you begin again, and while others push and pop.
    """
    while _move_some(db, queue, space, made):
        pass


def move_staged(db: fdb.Database, queue: Queue, space: fdb.Subspace) -> None:
    """Move all rows of the staged layer. First what consumers were given and did not fetch: stop
    them before."""
    move(db, queue, space["conflict"], packed)
    move(db, queue, space["item"], packed)


@transactional
def _move_some(tr: fdb.Transaction, queue: Queue, space: fdb.Subspace, made: Made) -> bool:
    messages: list[NewMessage] = []
    size = 0
    rows = space.range()
    # Who pops one of these rows conflicts with the move; who pushes another one does not.
    for row in tr.snapshot.get_range(rows.start, rows.stop, limit=MAX_ROWS):
        tr.add_read_conflict_key(row.key)
        messages.append(made(space.unpack(row.key), row.value))
        del tr[row.key]
        size += len(row.key) + len(row.value)
        if size > MAX_BYTES:
            break
    if messages:
        queue.enqueue_many(tr, messages)
    return bool(messages)


def main(kind: str, name: str, *elements: str) -> None:
    """Move all rows, and tell what is in the queue then."""
    db = fdbqueue.open()
    queue = Queue.open(db, name)
    space = fdb.Subspace(elements)
    if kind == "staged":
        move_staged(db, queue, space)
    else:
        move(db, queue, space, {"queue": plain, "priority": by_priority}[kind])
    print(f"{queue.depth(db).ready} messages are ready in queue {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
