"""Whom an enqueue wakes, how evenly equal consumers are served, and what subscriptions cost it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Annotated, NamedTuple

from typer import Option

from fdbqueue import Credit, Message, Queue, Subscription
from fdbqueue import Worker as QueueWorker
from fdbqueue.schema.subscription_definitions import Definition
from fdbqueue.store.binding import fdb
from fdbqueue.subscriptions import registry
from fdbqueue.values.selector import Selector
from fdbqueue.worker.consumer import QueueConsumer, SubscriptionConsumer

from . import processes
from .declare import Row, at_most, benchmark

QUEUE, SUBSCRIPTION = "the queue", "a subscription"
SLEEPERS, CONSUMERS, MOST_TO_LEAST = 64, 8, 1.2
ENQUEUES, MOST_MS = 200, 2.0
EVALUATED, LOOKED_UP = "amount > constant", "region = constant"
SECONDS = 0.5
"""How long to wait for consumers that should not wake."""
PAUSE_SECONDS = 0.005
"""How long after a message has been handled the next one comes."""


class Woken(NamedTuple):
    """How many of the sleepers one message wakes, and one that no selector matches; the second is
    None for consumers that take any."""

    wanted: int
    unwanted: int | None


@benchmark("wakeups")
def wakeups(
    messages: Annotated[
        int, Option(metavar="N", min=8, help="Messages that come one by one.")
    ] = 400,
    subscriptions: Annotated[
        int, Option(metavar="N", min=1, help="Subscriptions with selectors.")
    ] = 1_000,
) -> Iterator[Row]:
    """Measure whom an enqueue wakes, how evenly equal consumers are served, and what subscriptions
    with selectors cost an enqueue.

    \b
    Examples:
      tools/bench wakeups
      tools/bench wakeups --subscriptions 10000 --json
    """
    for of in (QUEUE, SUBSCRIPTION):
        with processes.scratch() as space:
            woken: Woken = processes.once(partial(_wake, space, of))
        yield at_most(f"{SLEEPERS} consumers of {of}, one message: woken", woken.wanted, 1)
        if woken.unwanted is not None:
            yield at_most(f"{of}, a message that it does not want: woken", woken.unwanted, 0)
        with processes.scratch() as space:
            served: list[int] = processes.once(partial(_take_turns, space, of, messages))
        ratio = max(served) / max(1, min(served))
        name = f"{CONSUMERS} consumers of {of}, {messages:,} messages one by one: most to least"
        yield at_most(name, ratio, MOST_TO_LEAST)
    with processes.scratch() as space:
        costs: dict[str, float] = processes.once(partial(_cost, space, subscriptions))
    for kind, ms in costs.items():
        yield at_most(f"{kind}: CPU of an enqueue", ms, MOST_MS, "ms")


def _opened(space: bytes, of: str) -> tuple[fdb.Database, Queue, Subscription | None]:
    db, root = processes.opened(space)
    queue = Queue.create(db, "wakeups", root=root)
    if of == QUEUE:
        return db, queue, None
    return db, queue, queue.subscribe(db, "europe", selector="region = 'eu'")


def _wake(space: bytes, of: str) -> Woken:
    db, queue, source = _opened(space, of)
    fired: set[int] = set()
    first = threading.Event()

    def woke(n: int) -> None:
        fired.add(n)
        first.set()

    def sleep(n: int) -> QueueConsumer:
        options = (str(n), 0, None)
        if source is None:
            consumer = QueueConsumer(db, queue, *options)
        else:
            consumer = SubscriptionConsumer(db, queue, source, *options)
        consumer.join()
        for watch in consumer.fetch(Credit(messages=2), 2).signal:
            watch.on_ready(lambda _: woke(n))
        return consumer

    members = [sleep(n) for n in range(SLEEPERS)]
    unwanted = None
    if source is not None:
        queue.enqueue(db, b"x", headers={"region": "us"})
        time.sleep(SECONDS)
        unwanted = len(fired)
    queue.enqueue(db, b"x", headers={"region": "eu"})
    first.wait()
    time.sleep(SECONDS)
    assert all(one.ref for one in members)
    return Woken(len(fired) - (unwanted or 0), unwanted)


def _take_turns(space: bytes, of: str, messages: int) -> list[int]:
    db, queue, source = _opened(space, of)
    handled: Counter[int] = Counter()
    ended = threading.Semaphore(0)

    def handler(n: int, message: Message) -> None:
        handled[n] += 1
        ended.release()

    with ExitStack() as stack:
        for n in range(CONSUMERS):
            worker = QueueWorker(db, 1, name=f"worker-{n}")
            worker.add(queue, partial(handler, n), transactional=False, subscription=source)
            stack.enter_context(worker)
        while sum(one.state == 2 for one in queue.consumers(db)) < CONSUMERS:
            time.sleep(PAUSE_SECONDS)
        for _ in range(messages):
            queue.enqueue(db, b"x", headers={"region": "eu"})
            ended.acquire()
            time.sleep(PAUSE_SECONDS)
    return [handled[n] for n in range(CONSUMERS)]


def _cost(space: bytes, subscriptions: int) -> dict[str, float]:
    """Milliseconds of processor time of an enqueue in a transaction that is not committed, which
    the store has no part in."""
    db, root = processes.opened(space)
    found: dict[str, float] = {}
    for kind, selector in (
        ("no subscription", None),
        (f"{subscriptions:,} times {LOOKED_UP}", "region = 'r{}' AND amount > 1"),
        (f"{subscriptions:,} times {EVALUATED}", "amount > {}"),
    ):
        queue = Queue.create(db, f"cost-{len(found)}", root=root)
        tr = db.create_transaction()
        scope = queue._scope(tr)
        for n in range(subscriptions if selector else 0):
            wanted = Selector(selector.format(n + 10)) if selector else None
            registry.store(tr, scope, Definition(f"s{n}", selector=wanted))
        tr.commit().wait()
        found[kind] = _enqueues(db, queue)
    return found


def _enqueues(db: fdb.Database, queue: Queue) -> float:
    spent = []
    for n in range(ENQUEUES):
        tr = db.create_transaction()
        queue._scope(tr)
        began = time.thread_time()
        queue.enqueue(tr, b"x" * 100, headers={"region": f"r{n}", "amount": 5})
        spent.append(1_000 * (time.thread_time() - began))
    return median(spent)
