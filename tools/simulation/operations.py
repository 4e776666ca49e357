"""The workload: a table of operations. A new operation is a new row, a function with a weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from chaosrun.actors import QUEUE_LEVEL, row
from chaosrun.place import BROWSERS, FILTERS, KEYS, LIMITS, REGIONS, TAKEN

from fdbqueue import Delivery, KeyLimits, NewMessage, Queue, Then
from fdbqueue.store import world
from fdbqueue.values.groups import ThenOn

from .clients import EXPECTED, MIXED, TARGET, Client

Body = Callable[[Client], object]
TABLE: dict[str, tuple[float, Body]] = {}
"""By name: how often, beside the others, and what."""


def operation(weight: float) -> Callable[[Body], Body]:
    """A row of the table."""

    def add(body: Body) -> Body:
        TABLE[body.__name__] = (weight, body)
        return body

    return add


# -- queues whose history is checked in full ----------------------------------------------------


def _messages(c: Client, name: str, count: int) -> tuple[list[NewMessage[bytes]], list[list[Any]]]:
    """New messages, and what the history has of each."""
    messages, told = [], []
    for i in range(count):
        tag = f"{c.who}:{world.monotonic_ns()}:{i}"
        free = name not in ("watched", "filtered")
        delay = c.random.choice([0.5, 1.5]) if free and c.random.random() < 0.05 else 0.0
        priority, region = c.random.randrange(10), c.random.choice(REGIONS)
        key = c.random.choice(KEYS) if free and c.random.random() < 0.1 else None
        limits = None
        if name in TAKEN and c.random.random() < (0.1 if key is None else 0.5):
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


def _size(messages: list[NewMessage[bytes]]) -> int:
    return sum(len(each.payload) for each in messages)


def _enqueue(c: Client, count: int, *, marked: bool) -> None:
    name = c.random.choice([*TAKEN, *TAKEN, "worked", "worked", "filtered", "watched"])
    if name == "watched":
        count = 1
    messages, told = _messages(c, name, count)
    queue: Queue = c.place.queues[name]

    def alone(n: int) -> Any:
        return queue.enqueue_many(c.db, messages)

    def beside(n: int) -> Any:
        return list(c.marked(n, lambda tr: list(queue.enqueue_many(tr, messages))))

    size = _size(messages)
    does = beside if marked else alone
    c.do("enqueue", name, does, rows=count, size=size, messages=told, marked=marked)


@operation(14)
def enqueue_one(c: Client) -> None:
    _enqueue(c, 1, marked=False)


@operation(3)
def enqueue_several(c: Client) -> None:
    _enqueue(c, c.random.choice([2, 5, 20]), marked=False)


@operation(3)
def enqueue_in_a_transaction(c: Client) -> None:
    _enqueue(c, c.random.choice([1, 3, 20]), marked=True)


@operation(1.5)
def send(c: Client) -> None:
    """By a producer, which shares a commit among what was sent meanwhile."""
    name = c.random.choice([*TAKEN, "worked", "filtered"])
    messages, told = _messages(c, name, c.random.choice([1, 10, 30]))
    sent = []
    try:
        producer = c.place.queues[name].producer(c.db)
    except EXPECTED:
        return
    with producer:
        for message, each in zip(messages, told, strict=True):
            n = c.recorder.begin(c.who, "enqueue", name, messages=[each], marked=False)
            sent.append((n, producer.send(message)))
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
        (0.08, "reject", lambda n: queue.reject(c.db, held, "simulated"), False),
        (0.50, "ack", lambda n: queue.ack(c.db, held), False),
        (1.00, "effect", lambda n: c.marked(n, lambda tr: _effect(c, tr, name, held)), True),
    ]
    if 0.08 < luck < 0.1:
        c.do("extend", name, lambda n: queue.extend(c.db, held) and None, rows=count)
    for below, how, does, marked in ways:
        if luck < below:
            size = sum(len(tag) for tag in tags)
            c.do(how, name, does, rows=count, size=size, tags=tags, marked=marked)
            return


def _effect(c: Client, tr: Any, name: str, held: list[Delivery]) -> list[str]:
    tags = [one.payload.decode() for one in held]
    for tag in tags:
        c.place.effect(tr, name, tag)
    c.place.queues[name].ack(tr, held)
    return tags


def _receive(c: Client, limit: int) -> None:
    name = c.random.choice(TAKEN)
    wait = 0.0 if name == "first" else c.random.choice([0.0, 0.0, 0.0, 0.2, 3.0])
    held: list[Delivery] = []

    def take(n: int) -> list[list[Any]]:
        queue = c.place.queues[name]
        held.extend(queue.receive_many(c.db, limit, wait=wait, consumer=c.who))
        return [row(one) for one in held]

    c.do("receive", name, take, rows=limit, size=limit * 100_000, wait=wait, limit=limit)
    _settle(c, name, held)


@operation(8)
def receive_one(c: Client) -> None:
    _receive(c, 1)


@operation(5)
def receive_several(c: Client) -> None:
    _receive(c, c.random.choice([3, 20, 50]))


@operation(2)
def receive_by_a_selector(c: Client) -> None:
    taker = c.random.choice(list(FILTERS))
    wait, limit = c.random.choice([0.0, 0.0, 0.2]), c.random.choice([1, 10])
    held: list[Delivery] = []

    def take(n: int) -> list[list[Any]]:
        held.extend(c.place.filter(taker).receive_many(c.db, limit, wait=wait))
        return [row(one) for one in held]

    c.do("receive", "filtered", take, rows=limit, size=limit * 100_000, region=taker, wait=wait)
    _settle(c, "filtered", held)


@operation(1)
def dequeue(c: Client) -> None:
    name = c.random.choice(TAKEN)

    def take(tr: Any) -> list[list[Any]]:
        message = c.place.queues[name].dequeue(tr)
        if message is None:
            return []
        c.place.effect(tr, name, message.payload.decode())
        return [row(message)]

    c.do("dequeue", name, lambda n: c.marked(n, take), rows=1, size=100_000, marked=True, wait=0.0)


@operation(1)
def browse(c: Client) -> None:
    name = c.random.choice(list(BROWSERS))

    def look(tr: Any) -> int:
        subscription = c.place.queues["watched"].subscriptions.open(tr, name)
        seen = [row(message) for message in subscription.browse(tr, 20)]
        if seen:
            c.place.log(tr, name, seen)
        return len(seen)

    c.do("browse", "watched", lambda n: c.marked(n, look), rows=20, size=2_000_000, browser=name)


def pause_and_resume(c: Client) -> None:
    """No row: whoever dies between the two would leave the queue paused."""
    name = c.random.choice(TAKEN)
    queue: Queue = c.place.queues[name]

    def both(n: int) -> None:
        queue.admin.pause(c.db)
        try:
            world.sleep(c.random.random())
        finally:
            queue.admin.resume(c.db)

    c.do("paused", name, both)


# -- a queue whose messages have every property: it must stay sound, and let all go ----------------


@operation(5)
def enqueue_anything(c: Client) -> None:
    count = c.random.choices([1, 10, 200, 2_000], [70, 25, 4, 1])[0]
    messages = [_anything(c, small=count > 10) for _ in range(count)]

    _put(c, messages)


def _put(c: Client, messages: list[NewMessage[bytes]]) -> None:
    name = _any_queue(c)
    if name == TARGET and c.place.ordered:
        messages = [replace(each, key=None) for each in messages]
    messages = [
        replace(each, headers={**(each.headers or {}), "terms": _terms(each)}) for each in messages
    ]

    def all_of_them(n: int) -> int:
        return len(c.place.any[name].enqueue_many(c.db, messages))

    count = len(messages)
    c.do("put", name, all_of_them, rows=count, size=_size(messages), count=count)


def _any_queue(c: Client) -> str:
    return c.random.choice([MIXED, MIXED, MIXED, TARGET])


@operation(0.6)
def enqueue_large_ones(c: Client) -> None:
    """All fall due, expire, or wait for a slot together: more than a transaction may take."""
    size = c.random.choice([60_000, 80_000])
    terms: dict[str, Any] = c.random.choice(
        [{"delay": 2.0}, {"delay": 2.0}, {"ttl": 3.0}, {"key": "k0"}]
    )
    message = NewMessage(b"l" * size, 4, {"region": "eu", "n": 1}, **terms)
    _put(c, [message] * 40)


def _anything(c: Client, *, small: bool) -> NewMessage[bytes]:
    def perhaps(chance: float, *values: Any) -> Any:
        return c.random.choice(values) if c.random.random() < chance else None

    large = not small and c.random.random() < 0.05
    size = int(10 ** c.random.uniform(0, math.log10(c.place.largest) if large else 2))
    headers: dict[str, Any] = {"region": c.random.choice(REGIONS), "n": c.random.randrange(9)}
    if not small and c.random.random() < 0.05:
        headers["large"] = "h" * c.random.randrange(7_500)
    unique = perhaps(0.1, "u0", "u1", "u" * 200)
    delay = perhaps(0.1, 0.5, 5.0, 60.0) or 0.0
    lives = perhaps(0.1, 1.0, 20.0)
    return NewMessage(
        bytes([c.random.randrange(256)]) * size,
        c.random.randrange(10),
        headers,
        delay=delay,
        ttl=lives and delay + lives,
        max_attempts=perhaps(0.1, 1, 2),
        dedup_id=perhaps(0.1, "d0", "d1") if unique is None else None,
        unique=unique,
        key=perhaps(0.04 if small else 0.3, *KEYS, "k" * 200),
        keep_result=perhaps(0.1, 5.0),
    )


def _terms(message: Any) -> str:
    """Of a new message, which has seconds, or of one that was taken."""
    kept = 1000 * (getattr(message, "keep_result", 0.0) or 0.0)
    return (
        f"{message.max_attempts} {int(getattr(message, 'keep_result_ms', kept) or 0)} {message.key}"
    )


def _ids(c: Client, name: str, found: list[Delivery]) -> list[str]:
    """The ids of what was taken, which must be as it was enqueued, wherever it has been since."""
    for message in (one.message for one in found):
        was, terms = str(message.headers.get("terms")), _terms(message)
        # A queue that sorts keeps the key of what has moved there for the way back.
        if name == TARGET and c.place.ordered:
            was, terms = was.rpartition(" ")[0], terms.rpartition(" ")[0]
        if "terms" in message.headers and was != terms:
            raise AssertionError(f"{message.id} had {was}, and has {terms}")
    if found:
        c.held.append((name, found))
    return [one.id for one in found]


@operation(5)
def receive_anything(c: Client) -> None:
    limit, wait = c.random.choice([1, 20, 200]), c.random.choice([0.0, 0.0, 1.0])

    name = _any_queue(c)

    def take(n: int) -> list[str]:
        return _ids(c, name, c.place.any[name].receive_many(c.db, limit, wait=wait))

    c.do("get", name, take, rows=limit, size=limit * c.place.largest, wait=wait, limit=limit)


@operation(6)
def settle_anything(c: Client) -> None:
    if not c.held:
        return
    name, held = c.held.pop(c.random.randrange(len(c.held)))
    part = held[: c.random.randrange(len(held)) + 1]
    queue, db, count = c.place.any[name], c.db, len(part)
    ways: list[tuple[str, Callable[[], object]]] = [
        ("ack", lambda: queue.ack(db, part)),
        ("ack", lambda: queue.ack(db, part)),
        ("ack one", lambda: queue.ack(db, part[0], result=b"r" * 100)),
        ("release", lambda: queue.release(db, part)),
        ("delay", lambda: queue.release(db, part, delay=c.random.choice([0.5, 30.0]))),
        ("fail", lambda: queue.release(db, part, error="e" * c.random.choice([10, 20_000]))),
        ("reject", lambda: queue.reject(db, part, "r" * c.random.choice([10, 9_000]))),
        ("drop", lambda: queue.reject(db, part, "dropped", drop=True)),
        ("extend", lambda: queue.extend(db, part)),
        ("cancel", lambda: queue.cancel(db, part[0].id).taken),
    ]
    how, does = c.random.choice(ways)
    size = sum(len(one.payload) for one in part)
    ids = [one.id for one in part]
    c.do(f"mixed {how}", name, lambda n: does() and None, rows=count, size=size, ids=ids)


@operation(0.2)
def move(c: Client) -> None:
    selector = c.random.choice([None, "region = 'eu'"])
    # A queue that sorts takes no messages with a key.
    back = c.place.ordered or c.random.random() < 0.5
    source, target = (c.place.target, MIXED) if back else (c.place.mixed, TARGET)
    verb = source.copy if c.random.random() < 0.1 else source.move
    size = c.place.largest
    c.do(
        "move",
        target,
        lambda n: verb(c.db, target, match=selector).taken and None,
        rows=1,
        size=size,
    )


@operation(0.5)
def redrive(c: Client) -> None:
    size = c.place.largest
    c.do("redrive", MIXED, lambda n: c.place.mixed.retry(c.db).taken and None, rows=1, size=size)


@operation(0.3)
def change_options(c: Client) -> None:
    changes: dict[str, Any] = c.random.choice(
        [
            {"lease": 2.0},
            {"lease": 8.0},
            {"max_attempts": 3},
            {"max_attempts": 8},
            {"keys": KeyLimits(concurrency=1)},
            {"keys": KeyLimits(concurrency=3)},
            {"keys": KeyLimits(window=2)},
            {"keys": KeyLimits(window=None)},
            {"expired": "dead"},
            {"max_in_flight": 5},
            {"max_in_flight": None},
            {"rate": "20/s"},
            {"rate": None},
            {"keys": KeyLimits(rate="5/s")},
            {"keys": KeyLimits(rate=None)},
            {"expired": "drop"},
            {"dead_letter_queue": TARGET},
            {"dead_letter_queue": None},
        ]
    )
    c.do(
        "set options",
        MIXED,
        lambda n: c.place.mixed.set_options(c.db, **changes) and None,
        changes=str(changes),
    )


@operation(0.5)
def enqueue_a_group(c: Client) -> None:
    messages = [_anything(c, small=True) for _ in range(c.random.choice([1, 5, 50]))]
    messages = [replace(each, dedup_id=None, unique=None) for each in messages]
    then_on: ThenOn = c.random.choice(["done", "settled"])
    queue, target = c.place.mixed, c.place.target

    def group(n: int) -> int:
        return len(
            queue.enqueue_many(c.db, messages, group=Then(b"then", queue=target, on=then_on))
        )

    c.do("group", MIXED, group, rows=len(messages), size=_size(messages), then_on=then_on)


@operation(1)
def receive_what_matches(c: Client) -> None:
    def take(n: int) -> list[str]:
        found = c.place.mixed.receive(c.db, match="region = 'eu'")
        return _ids(c, MIXED, [] if found is None else [found])

    c.do("match", MIXED, take, rows=1, size=c.place.largest)


@operation(1)
def change_one(c: Client) -> None:
    state = c.random.choice(["ready", "delayed", "waiting"])

    def change(n: int) -> str:
        queue = c.place.mixed
        found = queue.messages(c.db, state, 5)
        found = [each for each in found if each.message.payload != b"tick"]
        if not found:
            return ""
        one = c.random.choice(found).message.id
        if c.random.random() < 0.5:
            queue.cancel(c.db, one)
        else:
            queue.edit(c.db, one, priority=c.random.randrange(10))
        return one

    c.do("change", MIXED, change, rows=10, size=10 * c.place.largest, state=state)


@operation(0.2)
def remove(c: Client) -> None:
    state = c.random.choice(["ready", "delayed", "dead"])
    c.do(
        "remove",
        MIXED,
        lambda n: c.place.mixed.purge(c.db, match="region = 'us'", states=state).taken and None,
    )


@operation(0.3)
def change_a_schedule(c: Client) -> None:
    schedules, name = c.place.mixed.schedules, c.random.choice(["s0", "s1"])
    ways: list[tuple[str, Callable[[], object]]] = [
        ("set", lambda: schedules.set(c.db, name, b"tick", every=c.random.choice([1.0, 7.0]))),
        ("set", lambda: schedules.set(c.db, name, b"tick", cron="* * * * *", overlap="skip")),
        ("run", lambda: schedules.get(c.db, name) and schedules.run(c.db, name)),
        ("delete", lambda: schedules.delete(c.db, name)),
    ]
    how, does = c.random.choice(ways)
    c.do(f"schedule {how}", MIXED, lambda n: does() and None, rows=1, schedule=name)


@operation(0.5)
def look_around(c: Client) -> None:
    queue = c.place.mixed

    def look(n: int) -> None:
        queue.depth(c.db)
        queue.peek(c.db, 10)
        queue.messages(c.db, "delayed", 10)
        queue.admin.leases(c.db, 10)

    c.do("look", MIXED, look, rows=30, size=30 * c.place.largest)


def choose(c: Client) -> Body:
    """The next operation of a client."""
    weights = [weight for weight, _ in TABLE.values()]
    return c.random.choices([body for _, body in TABLE.values()], weights)[0]
