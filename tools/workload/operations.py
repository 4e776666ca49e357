"""The workload: a table of operations. A new operation is a new row, a function with a weight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, get_args

from fdbqueue import Delivery, NewMessage, Queue, Then
from fdbqueue.store import world
from fdbqueue.values.groups import ThenOn

from .clients import EXPECTED, Body, Client, row
from .place import BROWSERS, FILTERS, KEYS, LEASE, LIMITS, QUEUE_LEVEL, REGIONS, TAKEN

TABLE: dict[str, tuple[float, Body]] = {}
"""By name: how often, beside the others, and what."""
AREAS: dict[str, list[str]] = {}
"""The operations that meet each other, since they are about the same queues."""


def operation(weight: float, *areas: str) -> Callable[[Body], Body]:
    """A row of the table, and where it belongs."""

    def add(body: Body) -> Body:
        name = body.__name__
        if name in TABLE:
            raise ValueError(f"two operations have the name {name}")
        TABLE[name] = (weight, body)
        for area in areas:
            AREAS.setdefault(area, []).append(name)
        return body

    return add


# -- queues whose history is checked in full ----------------------------------------------------


def _messages(c: Client, name: str, count: int) -> tuple[list[NewMessage[bytes]], list[list[Any]]]:
    """New messages, and what the history has of each."""
    messages, told = [], []
    usual, late = c.place.usual, c.place.late
    if usual is None:
        usual = c.random.choice([4, c.random.randrange(10), None, None])
    for i in range(count):
        tag = f"{c.who}:{world.monotonic_ns()}:{i}"
        free = name not in ("watched", "filtered")
        delay = c.random.choice([0.5, 1.5]) if free and c.random.random() < late else 0.0
        priority = c.random.randrange(10) if usual is None else usual
        region = c.random.choice(REGIONS)
        key = c.random.choice(KEYS) if free and c.random.random() < c.place.keyed else None
        limits = None
        if name in TAKEN and c.random.random() < (c.place.keyed if key is None else 0.5):
            limits = dict(c.random.sample(LIMITS, c.random.choice([1, 1, 2])))
        headers = {"region": region}
        if c.random.random() < 0.02:
            headers["large"] = "x" * int(10 ** c.random.uniform(2, 3.8))
        messages.append(
            NewMessage(tag.encode(), priority, headers, delay=delay, key=key, limits=limits)
        )
        waits = key or ("/".join(limits) if limits else None)
        told.append([tag, QUEUE_LEVEL[name](priority), delay, waits, region])
    return messages, told


def size_of(messages: list[NewMessage[bytes]]) -> int:
    return sum(len(each.payload) for each in messages)


def _some(c: Client, *others: str) -> str:
    """A queue that is taken from now, or, less often, another."""
    taken = c.place.taken
    return c.random.choice([*taken * (6 // len(taken)), *others])


def _enqueue(
    c: Client,
    count: int,
    name: str = "",
    *,
    marked: bool = False,
    then: ThenOn | None = None,
) -> None:
    name = name or _some(c, "worked", "worked", "filtered", "watched")
    if name == "watched":
        count = 1
    messages, told = _messages(c, name, count)
    queue: Queue = c.place.queues[name]

    def alone(n: int) -> Any:
        return queue.enqueue_many(c.db, messages)

    group = None if then is None else Then(b"", queue=c.place.callbacks, on=then)

    def beside(n: int) -> Any:
        return list(c.marked(n, lambda tr: list(queue.enqueue_many(tr, messages, group=group))))

    size = size_of(messages)
    does = beside if marked else alone
    c.do("enqueue", name, does, rows=count, size=size, messages=told, marked=marked)


@operation(14, "taken")
def enqueue_one(c: Client) -> None:
    _enqueue(c, 1)


@operation(3, "taken")
def enqueue_several(c: Client) -> None:
    _enqueue(c, c.random.choice([2, 5, 20]))


@operation(3, "taken")
def enqueue_in_a_transaction(c: Client) -> None:
    _enqueue(c, c.random.choice([1, 3, 20]), marked=True)


@operation(3, "taken", "grouped")
def enqueue_a_group(c: Client) -> None:
    """With a callback; how its messages end says what becomes of it."""
    on, count = c.random.choice(get_args(ThenOn)), c.random.choice([1, 2, 2, 2, 6, 20])
    _enqueue(c, count, _some(c, "worked"), marked=True, then=on)


@operation(1.5, "taken")
def send(c: Client) -> None:
    """By a producer, which shares a commit among what was sent meanwhile."""
    name = _some(c, "worked", "filtered")
    messages, told = _messages(c, name, c.random.choice([1, 10, 30]))
    sent = []
    try:
        producer = c.place.queues[name].producer(c.db)
    except EXPECTED:
        return
    with producer:
        for message, each in zip(messages, told, strict=True):
            n = c.recorder.begin(c.who, "enqueue", name, messages=[each], marked=False)
            try:
                sent.append((n, producer.send(message)))
            except EXPECTED as error:
                c.recorder.end(c.who, n, error=f"{type(error).__name__}: {error}")
    # All are done: their own waiting would stop the one thread of the machine.
    for n, future in sent:
        c.finish(n, partial(_result, future))


def _result(future: Future[str]) -> list[str]:
    return [future.result(0)]


def _settle(c: Client, name: str, held: list[Delivery]) -> None:
    if not held:
        return
    queue: Queue = c.place.queues[name]
    tags = [one.payload.decode() for one in held]
    luck, count = c.random.random(), len(held)
    if luck < 0.02:
        return  # left to lapse
    ways: list[tuple[float, str, Callable[[int], object], bool]] = [
        (0.05, "release", lambda n: queue.release(c.db, held), False),
        (0.07, "fail", lambda n: queue.release(c.db, held, error="e" * 300), False),
        (0.08, "reject", lambda n: queue.reject(c.db, held, "on purpose"), False),
        (0.085, "cancel", lambda n: c.marked(n, lambda tr: _cancel(c, tr, name, held)), True),
        (0.50, "ack", lambda n: queue.ack(c.db, held), False),
        (1.00, "effect", lambda n: c.marked(n, lambda tr: _effect(c, tr, name, held)), True),
    ]
    if 0.085 < luck < 0.1:
        c.do("extend", name, lambda n: queue.extend(c.db, held) and None, rows=count)
    for below, how, does, marked in ways:
        if luck < below:
            size = sum(len(tag) for tag in tags)
            done = c.do(how, name, does, rows=count, size=size, tags=tags, marked=marked)
            if how == "cancel" and done:
                _end_in_some_way(c, queue, held)
            return


def _cancel(c: Client, tr: Any, name: str, held: list[Delivery]) -> list[str]:
    queue: Queue = c.place.queues[name]
    queue.extend(tr, held)  # or it is somebody else's by now
    for each in held:
        queue.cancel(tr, each.id)
    return [one.payload.decode() for one in held]


def _end_in_some_way(c: Client, queue: Queue, held: list[Delivery]) -> None:
    """Whatever ends the leases of what is cancelled, it is not delivered again."""
    ways: list[Callable[[], object]] = [
        lambda: queue.release(c.db, held),
        lambda: queue.release(c.db, held, error="on purpose"),
        lambda: queue.reject(c.db, held, "on purpose"),
        lambda: None,
    ]
    with contextlib.suppress(*EXPECTED):
        c.random.choice(ways)()


def _effect(c: Client, tr: Any, name: str, held: list[Delivery]) -> list[str]:
    tags = [one.payload.decode() for one in held]
    for tag in tags:
        c.place.effect(tr, name, tag)
    c.place.queues[name].ack(tr, held)
    return tags


def _receive(c: Client, limit: int) -> None:
    name = c.random.choice(c.place.taken)
    wait = 0.0 if name == "first" else c.random.choice([0.0, 0.0, 0.0, 0.2, 3.0])
    held: list[Delivery] = []

    def take(n: int) -> list[list[Any]]:
        queue = c.place.queues[name]
        held.extend(queue.receive_many(c.db, limit, wait=wait, consumer=c.who))
        return [row(one) for one in held]

    c.do("receive", name, take, rows=limit, size=limit * 100_000, wait=wait, limit=limit)
    if held and c.random.random() < 0.04:  # Until its lease is about to end.
        world.sleep(LEASE * c.random.uniform(0.95, 1.01))
    _settle(c, name, held)


@operation(8, "taken", "grouped")
def receive_one(c: Client) -> None:
    _receive(c, 1)


@operation(5, "taken", "grouped")
def receive_several(c: Client) -> None:
    _receive(c, c.random.choice([2, 3, 20, 50]))


@operation(2, "subscribed")
def receive_by_a_selector(c: Client) -> None:
    taker = c.random.choice(list(FILTERS))
    wait, limit = c.random.choice([0.0, 0.0, 0.2]), c.random.choice([1, 10])
    held: list[Delivery] = []

    def take(n: int) -> list[list[Any]]:
        held.extend(c.place.filter(taker).receive_many(c.db, limit, wait=wait))
        return [row(one) for one in held]

    c.do("receive", "filtered", take, rows=limit, size=limit * 100_000, region=taker, wait=wait)
    _settle(c, "filtered", held)


@operation(1, "taken")
def dequeue(c: Client) -> None:
    name = c.random.choice(c.place.taken)

    def take(tr: Any) -> list[list[Any]]:
        message = c.place.queues[name].dequeue(tr)
        if message is None:
            return []
        c.place.effect(tr, name, message.payload.decode())
        return [row(message)]

    c.do("dequeue", name, lambda n: c.marked(n, take), rows=1, size=100_000, marked=True, wait=0.0)


@operation(3, "subscribed")
def enqueue_for_subscriptions(c: Client) -> None:
    """At once with those who move their cursors."""
    _enqueue(c, 1, c.random.choice(c.place.subscribed_now), marked=c.random.random() < 0.5)


@operation(3, "subscribed")
def browse(c: Client) -> None:
    name = c.random.choice(list(BROWSERS))

    def look(tr: Any) -> int:
        subscription = c.place.queues["watched"].subscriptions.open(tr, name)
        seen = [row(message) for message in subscription.browse(tr, 20)]
        if seen:
            c.place.log(tr, name, seen)
        return len(seen)

    c.do("browse", "watched", lambda n: c.marked(n, look), rows=20, size=2_000_000, browser=name)


def _resumed(c: Client, queue: Queue) -> bool:
    try:
        queue.admin.resume(c.db)
    except EXPECTED:
        return False
    return True


def pause_and_resume(c: Client) -> None:
    """No row: whoever dies between the two would leave the queue paused."""
    name = c.random.choice(c.place.taken)
    queue: Queue = c.place.queues[name]

    def both(n: int) -> None:
        try:
            queue.admin.pause(c.db)  # If its outcome is unknown, the queue may be paused.
            ready = queue.depth(c.db).ready
            world.sleep(c.random.random())
            left = queue.depth(c.db).ready
            assert left >= ready, f"of {ready} messages {left} are left while {name} is paused"
        finally:
            while not _resumed(c, queue):
                world.sleep(1.0)

    c.do("paused", name, both)
