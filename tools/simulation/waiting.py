"""Those who wait for messages, where nothing fails: each is told of one, and a line is served."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from workload.clients import Client
from workload.place import Place

from fdbqueue import Delivery, NewMessage
from fdbqueue.store import world

WOKEN_SECONDS = 5.0
"""Within so long a message ends the waiting for it."""
QUEUES = {"auto": None, "staged": None, "filtered": "eu"}
"""Those that are waited for, and by which subscription."""
STAND, TURNS = 4, 10
"""How many stand in a line, and how often each takes a message."""
SERVED_SECONDS = 1.0
"""Within so long all are served, beside what calls take: sooner than others find out that a leader
has left them."""
_FOR_LONG = 10_000.0
"""Seconds: longer than anybody waits."""
_KEY = "told"


def receive(place: Place, name: str, count: int = 1, **terms: Any) -> list[Delivery]:
    """Take from one of ``QUEUES``."""
    region = QUEUES[name]
    taken_from = place.queues[name] if region is None else place.filter(region)
    return [*taken_from.receive_many(place.db, count, **terms)]


def some(count: int = 1, **terms: Any) -> list[NewMessage[bytes]]:
    """Messages that all want."""
    return [NewMessage(b"", headers={"region": "eu"}, **terms)] * count


def coming(place: Place, name: str, chance: random.Random) -> Callable[[], object]:
    """Prepare a message that is to come to one of ``QUEUES``; returns what lets it become ready."""
    queue, db = place.queues[name], place.db

    def taken(**terms: Any) -> list[Delivery]:
        queue.enqueue_many(db, some(**terms))
        return receive(place, name, lease=_FOR_LONG)

    def released() -> Callable[[], object]:
        return partial(queue.release, db, taken())

    def retried() -> Callable[[], object]:
        queue.reject(db, taken(), "to come back")
        return partial(queue.retry, db)

    def hurried() -> Callable[[], object]:
        queue.enqueue_many(db, some(delay=_FOR_LONG))
        return partial(queue.retry, db, states=["retrying", "scheduled"])

    def moved() -> Callable[[], object]:
        place.callbacks.enqueue_many(db, some())
        return partial(place.callbacks.move, db, name)

    def let_out() -> Callable[[], object]:
        queue.keys[_KEY].set(db, concurrency=1)
        held = taken(key=_KEY)
        queue.enqueue_many(db, some(key=_KEY))
        return partial(queue.ack, db, held)

    ways: list[Callable[[], Callable[[], object]]] = [
        lambda: partial(queue.enqueue, db, b"", headers={"region": "eu"}),
        lambda: partial(queue.enqueue_many, db, some()),
        *(released, retried, hurried, moved, let_out),
    ]
    return chance.choice(ways)()


def stand(client: Client, name: str, turns: int) -> None:
    """Take messages one after the other, and do something with each."""
    for turn in range(turns):
        client.doing = f"wait in {name} for the message number {turn}"
        held = receive(client.place, name, wait=_FOR_LONG)
        client.place.queues[name].ack(client.db, held)
        world.sleep(client.random.choice([0.0, 0.02]) * client.random.random())
