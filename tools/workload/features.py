"""The workload, second part: a queue whose messages have every property and whose options change.

It must stay sound, and let all go: so said by ``verify``, the budgets and the draining.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec.structs import replace
from tenacity import wait_fixed

from fdbqueue import (
    Bounds,
    Delivery,
    KeyLimits,
    Message,
    NewMessage,
    Queue,
    Reject,
    Retry,
    Snooze,
    Then,
    describe,
    list_queues,
    survey,
)
from fdbqueue.errors import (
    BatchLost,
    ExpiredBacklog,
    Held,
    InvalidArgument,
    MessagePlanned,
    NoResult,
    OptionsMismatch,
    ProducerFull,
    QueueExists,
    QueueNotFound,
    SinkBehind,
    SinkUnfinished,
    TakenOver,
    TransactionTooLarge,
    Unfinished,
    UnknownContentType,
)
from fdbqueue.store import world
from fdbqueue.store.binding import fdb
from fdbqueue.values.groups import ThenOn
from fdbqueue.values.model import OnConflict

from .clients import Client
from .operations import AREAS as AREAS
from .operations import TABLE as TABLE
from .operations import operation, size_of
from .place import KEYS, MADE, MIXED, REGIONS, SHARED, TARGET, Place

SOURCES = ("a", "b")
"""Names of imports, sinks and consumers of plans."""
MOST_BYTES = 8_000_000
"""Of payloads, beyond which a call may be refused as too large."""
NAMELESS: dict[str, Any] = {"unique": None, "on_conflict": "keep", "max_delay": None}
KEPT_SECONDS = 600.0
"""Longer than any process stands still, and than clocks are wrong."""
SUBSCRIPTIONS = ("takes", "takes exclusive", "takes closes", "browses", "browses exclusive")


@operation(5, "mixed", "planned")
def enqueue_anything(c: Client) -> None:
    count = c.random.choices([1, 10, 200, 2_000], [70, 25, 4, 1])[0]
    messages = [_anything(c, small=count > 10) for _ in range(count)]

    _put(c, messages)


def _put(c: Client, messages: list[NewMessage[bytes]]) -> None:
    name = _any_queue(c)
    if name == TARGET and c.place.ordered:
        messages = [replace(each, key=None, limits=None) for each in messages]
        if len(messages) > 10:  # A name that is there makes each read after the one before.
            messages = [replace(each, **NAMELESS, dedup_id=None) for each in messages]
    messages = [
        replace(each, headers={**(each.headers or {}), "terms": _terms(each)}) for each in messages
    ]

    def all_of_them(n: int) -> int:
        ids = c.place.any[name].enqueue_many(c.db, messages)
        c.ids.extend(ids[:10])
        return len(ids)

    count, size = len(messages), size_of(messages)
    # It is to replace a message that a plan has; and a transaction holds 10 MB.
    may = (MessagePlanned, TransactionTooLarge) if size > MOST_BYTES else (MessagePlanned,)
    c.do("put", name, all_of_them, rows=count, size=size, count=count, may=may)


def _any_queue(c: Client) -> str:
    return c.random.choice(c.place.mixed_now)


@operation(1.5, "mixed")
def enqueue_large_ones(c: Client) -> None:
    """All fall due, expire, or wait for a slot together: more than a transaction may take."""
    terms: dict[str, Any] = c.random.choice(
        [{"delay": 2.0}, {"delay": 2.0}, {"ttl": 3.0}, {"key": "k0"}]
    )
    message = NewMessage(b"l" * 80_000, 4, {"region": "eu", "n": 1}, **terms)
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
    delay = perhaps(c.place.late, 0.5, 5.0, 60.0) or 0.0
    lives = perhaps(0.1, 1.0, 20.0)
    conflict: OnConflict = "keep"
    if unique is not None and not small:
        conflict = c.random.choice(["keep", "replace", "debounce"])
    return NewMessage(
        bytes([c.random.randrange(256)]) * size,
        c.random.randrange(10) if c.place.usual is None else c.place.usual,
        headers,
        delay=delay,
        ttl=lives and delay + lives,
        max_attempts=perhaps(0.1, 1, 2),
        dedup_id=perhaps(0.1, "d0", "d1") if unique is None else None,
        unique=unique,
        on_conflict=conflict,
        max_delay=20.0 if conflict == "debounce" else None,
        backoff=perhaps(0.05, wait_fixed(1)),
        limits=perhaps(c.place.keyed / 2, dict(SHARED[:1]), dict(SHARED)),
        key=perhaps(0.04 if small else 0.1 + c.place.keyed, *KEYS, "k" * 200),
        # One that is replaced may keep its own.
        keep_result=perhaps(0.1, 5.0) if unique is None else None,
    )


def _terms(message: Any) -> str:
    """Of a new message, which has seconds, or of one that was taken."""
    kept = 1000 * (getattr(message, "keep_result", 0.0) or 0.0)
    return (
        f"{message.max_attempts} {int(getattr(message, 'keep_result_ms', kept) or 0)} {message.key}"
    )


def astray(place: Place, name: str, messages: Iterable[Message]) -> list[str]:
    """Those that are not as they were enqueued, wherever they have been since."""
    found = []
    for message in messages:
        was, terms = str(message.headers.get("terms")), _terms(message)
        # A dead letter that was forwarded, and what has moved to a queue that sorts, keep their key
        # for the way back.
        if message.death is not None or (name == TARGET and place.ordered):
            was, terms = was.rpartition(" ")[0], terms.rpartition(" ")[0]
        if "terms" in message.headers and was != terms:
            found.append(f"moved: {name}: {message.id} had {was}, and has {terms}")
    return found


def _ids(c: Client, name: str, found: list[Delivery]) -> list[str]:
    """The ids of what was taken."""
    wrong = astray(c.place, name, (one.message for one in found))
    assert not wrong, wrong
    if found:
        c.held.append((name, found))
    return [one.id for one in found]


@operation(5, "mixed", "planned")
def receive_anything(c: Client) -> None:
    limit, wait = c.random.choice([1, 20, 200]), c.random.choice([0.0, 0.0, 1.0])

    name = _any_queue(c)

    def take(n: int) -> list[str]:
        return _ids(c, name, c.place.any[name].receive_many(c.db, limit, wait=wait))

    c.do("get", name, take, rows=limit, size=limit * c.place.largest, wait=wait, limit=limit)


@operation(6, "mixed")
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


def _one_of(
    c: Client,
    what: str,
    ways: dict[str, Callable[[], object]],
    *,
    queue: str = MIXED,
    rows: int = 20,
    may: tuple[type[Exception], ...] = (),
) -> None:
    """One of several operations of a kind. may: what they may raise besides what all may."""
    how = c.random.choice(list(ways))
    size = rows * c.place.largest

    def body(n: int) -> None:
        ways[how]()

    c.do(f"{what} {how}", queue, body, rows=rows, size=size, may=may)


# -- taking, in other ways -------------------------------------------------------------------------


@operation(2, "mixed")
def receive_in_other_ways(c: Client) -> None:
    queue, db = c.place.mixed, c.db
    before = c.held.pop() if c.held and c.held[-1][0] == MIXED else (MIXED, [])

    def with_ack() -> None:
        _ids(c, MIXED, queue.receive_many(db, 5, ack=before[1], lease=1.0, consumer=c.who))

    def matching() -> None:
        found = queue.receive(db, match="region = 'eu'", wait=c.random.choice([0.0, 1.0]))
        _ids(c, MIXED, [] if found is None else [found])

    def batch() -> None:
        with queue.receive_batch(db, 20) as found:
            world.sleep(c.random.random())
            if len(found) > 1 and c.random.random() < 0.3:
                raise LookupError("simulated")

    def consume() -> None:
        for one in queue.consume(db, max_messages=3, lease=3.0):
            _ids(c, MIXED, [one])
            if c.random.random() < 0.3:
                return

    def dequeue(tr: fdb.Transaction) -> object:
        return queue.dequeue(tr)

    ways: dict[str, Callable[[], object]] = {
        "ack": with_ack,
        "match": matching,
        "batch": batch,
        "consume": consume,
        "at most once": lambda: queue.receive_many(db, 5, at_most_once=True),
        "one at most once": lambda: queue.receive(db, at_most_once=True, match="n > 3"),
        "dequeue": lambda: fdb.transactional(dequeue)(db),
    }
    _one_of(c, "receive", ways, rows=250, may=(LookupError, ExpiredBacklog))


@operation(1, "mixed")
def settle_with_verdicts(c: Client) -> None:
    if not c.held:
        return
    name, held = c.held.pop(c.random.randrange(len(c.held)))
    queue = c.place.any[name]

    def verdict() -> BaseException:
        return c.random.choice(
            [
                Reject("no"),
                Reject("no", drop=True),
                Retry(),
                Retry("later", seconds=2.0),
                Snooze(3.0),
                LookupError("e" * 9_000),
            ]
        )

    verdicts = {one.id: verdict() for one in held if c.random.random() < 0.5}
    size = sum(len(one.payload) for one in held)
    c.do("settle", name, lambda n: queue.settle(c.db, held, verdicts), rows=len(held), size=size)


@operation(0.5, "mixed")
def end_with_a_result(c: Client) -> None:
    """However it ends, that is known for as long as it is kept, whatever clocks say that are wrong
    by some seconds."""
    queue, db = c.place.mixed, c.db
    headers: dict[str, Any] = {"region": "kept", "n": 0}
    ways: list[Callable[[Delivery], object]] = [
        lambda one: queue.ack(db, one, result=one.id.encode()),
        lambda one: queue.ack(db, one),
        lambda one: queue.reject(db, one, "not done"),
        lambda one: queue.reject(db, one, "not done", drop=True),
    ]

    def both(n: int) -> None:
        queue.enqueue(db, b"", headers=headers, keep_result=KEPT_SECONDS)
        one = queue.receive(db, match="region = 'kept'")
        if one is not None:
            end = c.random.choice(ways)
            end(one)
            _is_kept(c, one.id, ways.index(end))

    c.do("end with a result", MIXED, both, rows=250, size=250 * c.place.largest)


def _is_kept(c: Client, message_id: str, how: int) -> None:
    """A message has ended that was done with a value, or without one, or was not done."""
    state: str | None = None
    value = None
    try:
        value = c.place.mixed.result(c.db, message_id)
    except NoResult as error:
        state = error.state
    wanted = message_id.encode() if how == 0 else None
    # A dead one may be another by now.
    sound = value == wanted and (how > 1 if state else how < 2) and state != "unknown"
    assert sound, f"the result of {message_id} after way {how} is {value!r}, {state}"


@operation(1, "mixed")
def stand_in_line(c: Client) -> None:
    queue, db = c.place.mixed, c.db
    waits = c.random.random() < 0.3

    def request(n: int) -> list[str]:
        ticket = queue.line.request(db, max_messages=5, wait=waits, consumer=c.who)
        if c.random.random() < 0.3:
            world.sleep(c.random.choice([0.0, 1.0, 15.0]))
            found = _ids(c, MIXED, queue.line.withdraw(db, ticket))
            world.sleep(1.0)
            assert found or not queue.line.withdraw(db, ticket), "it has left, and is answered"
            return found
        wait = c.random.choice([0.0, 2.0])
        return _ids(c, MIXED, queue.line.collect(db, ticket, wait=wait))

    c.do("line", MIXED, request, rows=200, size=200 * c.place.largest)


# -- putting in, in other ways ---------------------------------------------------------------------


@operation(0.5, "mixed")
def enqueue_a_group_of_anything(c: Client) -> None:
    messages = [_anything(c, small=True) for _ in range(c.random.choice([1, 5, 50]))]
    messages = [replace(each, dedup_id=None, **NAMELESS) for each in messages]
    on: ThenOn = c.random.choice(["done", "settled"])
    queue, target = c.place.mixed, c.place.target
    name = c.random.choice([None, None, f"g{c.random.randrange(99)}"])

    def group(n: int) -> int:
        then = Then(b"then", queue=target, on=on, name=name)
        return len(queue.enqueue_many(c.db, messages, group=then))

    # A name that another group has, of other messages.
    may = () if name is None else (InvalidArgument, OptionsMismatch)
    c.do("group", MIXED, group, rows=len(messages), size=size_of(messages), on=on, may=may)


@operation(0.5, "mixed")
def send_anything(c: Client) -> None:
    queue, db = c.place.mixed, c.db
    count = c.random.choice([1, 30])
    messages = [_anything(c, small=True) for _ in range(count)]

    def send(n: int) -> None:
        producer = queue.producer(db, linger=c.random.choice([None, 0.1]), max_pending=20)
        for message in messages:
            producer.send(message, room=2.0)
        if c.random.random() < 0.3:
            producer.flush(5.0)
            assert not producer.pending
        producer.close(30.0)

    may = (ProducerFull, Unfinished)
    c.do("send", MIXED, send, rows=count, size=size_of(messages), may=may)


@operation(0.5, "mixed")
def enqueue_a_job(c: Client) -> None:
    queue, at = c.place.mixed, datetime.fromtimestamp(world.time() + 3, UTC)

    def greet(value: str) -> str:
        return value

    def enqueue(n: int) -> str:
        job = Queue(MIXED, c.place.root).job(greet)
        return (
            job.enqueue(c.db, "you", at=at)
            if c.random.random() < 0.5
            else queue.enqueue(
                c.db, b"one", room=0, headers={"region": "us"}, backoff=wait_fixed(3)
            )
        )

    c.do("job", MIXED, enqueue, rows=1)


@operation(0.5, "mixed")
def stream_in(c: Client) -> None:
    """By an import, or by a sink; more than one of each name goes on at once."""
    queue, db, chance = c.place.mixed, c.db, c.random
    source = queue.streams.importer(chance.choice(SOURCES))
    sink = queue.streams.sink(chance.choice(SOURCES))
    messages = [_anything(c, small=True) for _ in range(chance.choice([1, 20, 100]))]
    messages = [replace(each, **NAMELESS) for each in messages]

    def bring() -> None:
        place = source.place(db)
        for n in range(int(place or b"0"), int(place or b"0") + 3):
            source.enqueue(db, messages, since=b"%d" % n if n else b"", until=b"%d" % (n + 1))

    def stage() -> None:
        batch = max(0, sink.state(db).batch + chance.choice([0, 1, 1, 1]))
        stager = sink.stage(db, batch)
        for message in messages:
            stager.plain(b"plain", message.priority, message.headers)
            stager.add(message)
        luck, goes_on = chance.random(), chance.random() < 0.8
        if luck < 0.2:
            stager.discard()
        elif luck < 0.4:
            sink.discard(db, batch, [stager.finish()])
        else:
            attempts = [stager.finish()]
            sink.publish(db, batch, attempts, room=1.0, progress=lambda state: goes_on)

    def forget() -> None:
        source.forget(db)
        sink.forget(db)

    ways: dict[str, Callable[[], object]] = {
        "import": bring,
        "sink": stage,
        "finish": lambda: sink.finish(db, room=1.0),
        "look": lambda: [queue.streams.sinks(db), queue.streams.undecided(db)],
        "forget": forget,
    }
    # Batches are lost to those who forget the stream meanwhile.
    may = (TakenOver, SinkBehind, SinkUnfinished, BatchLost)
    _one_of(c, "stream", ways, rows=4 * len(messages), may=may)


@operation(0.5, "mixed", "planned")
def stream_out(c: Client) -> None:
    """By plans, of which more than one run goes on at once."""
    plans, db, name = c.place.mixed.streams.plans, c.db, c.random.choice(SOURCES)

    def plan() -> None:
        planner = plans.planner(name, lenient=c.random.random() < 0.5)
        since, ends = planner.begin(db), planner.ends(db)
        for _ in range(3):
            until = planner.next(db, since, messages=c.random.choice([1, 50]), ends=ends)
            for piece in planner.pieces(db, since, until, 2):
                for _page in planner.read(db, piece):
                    pass
            since = until
        if c.random.random() < 0.7:
            planner.acknowledge(db, since)

    ways: dict[str, Callable[[], object]] = {
        "release": lambda: plans.release(db, name),
        "forget": lambda: plans.forget(db, name),
        "look": lambda: [plans.list(db), plans.show(db, name), plans.messages(db, name, 10)],
    }
    if c.random.random() < 0.7:
        ways = {"plan": plan}
    _one_of(c, "plans", ways, rows=200, may=(TakenOver, BatchLost, Held))


# -- changing --------------------------------------------------------------------------------------


OPTIONS: list[dict[str, Any]] = [
    {"lease": 2.0},
    {"lease": 8.0},
    {"max_attempts": 3},
    {"max_attempts": 8},
    {"keys": KeyLimits(concurrency=1)},
    {"keys": KeyLimits(concurrency=3)},
    {"keys": KeyLimits(window=2)},
    {"keys": KeyLimits(window=2, weight=3)},
    {"keys": KeyLimits(window=None, weight=1)},
    {"keys": KeyLimits(rate="5/s")},
    {"keys": KeyLimits(rate=None)},
    {"expired": "dead"},
    {"expired": "drop"},
    {"max_in_flight": 5},
    {"max_in_flight": None},
    {"rate": "20/s"},
    {"rate": None},
    {"dead_letter_queue": TARGET},
    {"dead_letter_queue": None},
    {"backoff": None},
    {"backoff": wait_fixed(0.5)},
    {"compression": "zlib"},
    {"compression": "none"},
    {"history_seconds": 60},
    {"history_seconds": None},
    {"dedup_window": 1},
    {"max_payload": 9_000_000},
    {"bounds": Bounds(messages=300, when_full="drop-oldest", dropped="dead")},
    {"bounds": Bounds(bytes=300_000, when_full="block", resume_at=0.5)},
    {"bounds": Bounds(messages=None, bytes=None, when_full="reject")},
]


@operation(0.3, "mixed")
def change_options(c: Client) -> None:
    changes = c.random.choice(OPTIONS)
    c.do(
        "set options",
        MIXED,
        lambda n: c.place.mixed.set_options(c.db, **changes) and None,
        changes=list(changes),
    )


@operation(1, "mixed")
def change_limits(c: Client) -> None:
    """Of a key, and of one that queues share."""
    key = c.place.mixed.keys[c.random.choice(KEYS)]
    limit = c.place.mixed.limits[c.random.choice(SHARED)]
    own: dict[str, Any] = c.random.choice(
        [{"concurrency": 1}, {"concurrency": 5}, {"rate": "10/s"}, {"paused": True}]
    )
    ways: dict[str, Callable[[], object]] = {
        "key": lambda: key.set(c.db, **own),
        "key paused": lambda: key.pause(c.db),
        "key resumed": lambda: key.resume(c.db),
        "key reset": lambda: key.reset(c.db),
        "shared": lambda: limit.set(c.db, **own),
        "shared paused": lambda: limit.pause(c.db),
        "shared resumed": lambda: limit.resume(c.db),
        "shared deleted": lambda: limit.delete(c.db),
        "looked at": lambda: [key.state(c.db), limit.state(c.db)],
    }
    _one_of(c, "limit", ways, rows=100)


@operation(0.5, "mixed")
def change_a_schedule(c: Client) -> None:
    schedules, name = c.place.mixed.schedules, c.random.choice(["s0", "s1"])
    ways: dict[str, Callable[[], object]] = {
        "every": lambda: schedules.set(
            c.db, name, b"tick", every=c.random.choice([1.0, 7.0]), catch_up="all"
        ),
        "cron": lambda: schedules.set(c.db, name, b"tick", cron="* * * * *", overlap="skip"),
        "run": lambda: schedules.run(c.db, name),
        "pause": lambda: schedules.pause(c.db, name),
        "resume": lambda: schedules.resume(c.db, name),
        "delete": lambda: schedules.delete(c.db, name),
        "get": lambda: [schedules.get(c.db, name), schedules.list(c.db)],
    }
    _one_of(c, "schedule", ways)


@operation(3, "mixed")
def change_some(c: Client) -> None:
    """One selection, six verbs: by ids, or by what matches, in some states, a page or all."""
    queue, db, chance = c.place.mixed, c.db, c.random
    chosen: dict[str, Any] = {}
    if c.ids and chance.random() < 0.5:
        chosen["ids"] = chance.sample(list(c.ids), min(len(c.ids), chance.choice([1, 5])))
    else:
        chosen["match"] = chance.choice(
            ["region = 'us'", "n > 6", lambda message: message.level > 1]
        )
        if chance.random() < 0.3:
            chosen["progress"] = lambda progress: False
    # A queue that sorts takes no messages with a key.
    origin, target = queue, TARGET
    if c.place.ordered or chance.random() < 0.5:
        origin, target = c.place.target, MIXED

    def resumed() -> object:
        page = queue.count(db, match="n > 2", states="ready", progress=lambda progress: False)
        return queue.count(db, match="n > 2", states="ready", resume=page.place)

    ways: dict[str, Callable[[], object]] = {
        "count": resumed,
        "cancel": lambda: queue.cancel(db, **chosen),
        "edit": lambda: queue.edit(db, priority=chance.randrange(10), **chosen),
        "put off": lambda: queue.edit(db, delay=chance.choice([0.0, 2.0]), **chosen),
        "say": lambda: (
            queue.edit(db, chosen["ids"], payload=b"said" * chance.choice([1, 50_000]))
            if "ids" in chosen
            else None
        ),
        "move": lambda: origin.move(db, target, **chosen),
        "copy": lambda: origin.copy(db, target, **chosen) if "ids" in chosen else None,
        "retry": lambda: queue.retry(db, at_once=chance.choice([None, 10]), **chosen),
        "retry later ones": lambda: queue.retry(db, states=["retrying", "scheduled"], **chosen),
        "purge": lambda: queue.purge(db, states=["dead", "retrying", "scheduled"], **chosen),
        "move all": lambda: origin.move(db, target),
        "retry all": lambda: queue.retry(db),
    }
    _one_of(c, "select", ways, rows=1)


@operation(0.5, "mixed")
def subscribe(c: Client) -> None:
    subscriptions, db, chance = c.place.mixed.subscriptions, c.db, c.random
    name = chance.choice(SUBSCRIPTIONS)
    mode = "browse" if name.startswith("browse") else "acquire"
    if chance.random() < 0.3 or name not in c.subscriptions:
        # It aborts what is under way: not often.
        def open_one(n: int) -> None:
            c.subscriptions[name] = subscriptions.open(
                db,
                name,
                create=chance.random() < 0.5,
                mode=mode,
                start=chance.choice(["first", "now"]) if mode == "browse" else "first",
                exclusive=name.endswith("exclusive"),
                auto_close=name.endswith("closes"),
            )

        c.do("subscribe", MIXED, open_one, subscription=name)
        return
    subscription = c.subscriptions[name]
    wait = chance.choice([0.0, 1.0])
    ways: dict[str, Callable[[], object]] = {
        "seek": lambda: subscription.seek(db, chance.choice(["first", "now"])),
        "select": lambda: subscription.set_selector(db, chance.choice([None, "n < 5"])),
        "look": lambda: [subscription.positions(db), subscription.definition(db)],
        "close": lambda: subscription.close(db),
        "remove": lambda: subscription.remove(db),
        "remove by name": lambda: subscriptions.remove(db, name),
        "list": lambda: subscriptions.list(db),
    }
    takes: dict[str, Callable[[], object]] = {
        "receive": lambda: _ids(c, MIXED, subscription.receive_many(db, 10, wait=wait)),
        "receive one": lambda: _ids(c, MIXED, [*filter(None, [subscription.receive(db)])]),
        "at most once": lambda: subscription.receive(db, at_most_once=True),
    }
    browses: dict[str, Callable[[], object]] = {
        "browse": lambda: subscription.browse(db, 10, wait=wait)
    }
    if chance.random() < 0.8:
        ways = browses if mode == "browse" else takes
    # One that takes every message goes to no other place than the first.
    _one_of(c, "subscription", ways, rows=10, may=(Held, InvalidArgument))


# -- looking, and operating ------------------------------------------------------------------------


@operation(1.5, "mixed")
def look_around(c: Client) -> None:
    queue, db, root, chance = c.place.mixed, c.db, c.place.root, c.random
    one = chance.choice(list(c.ids) or [f"00-{0:012x}-{0:016x}"])
    state = chance.choice(["ready", "scheduled", "retrying", "waiting"])
    leased = c.held[0][1][0] if c.held else None

    def result() -> object:
        try:
            return queue.result(db, one, wait=chance.choice([0.0, 2.0]))
        except (NoResult, UnknownContentType):
            return None

    ways: dict[str, Callable[[], object]] = {
        "get": lambda: queue.get(db, one),
        "peek": lambda: queue.peek(db, 10),
        "browse": lambda: list(islice(queue.browse(db), 50)),
        "messages": lambda: queue.messages(db, state, 10),
        "depth": lambda: queue.depth(db),
        "watch": lambda: list(islice(queue.watch(db), 1)),
        "history": lambda: queue.history(db, 100),
        "result": result,
        "value": lambda: leased and queue.value(leased),
        "dead": lambda: [queue.dead.list(db, 10), queue.dead.show(db, one)],
        "keys": lambda: [queue.keys.limited(db), queue.keys.waiting(db)],
        "limits": lambda: queue.limits.list(db),
        "groups": lambda: [queue.groups.list(db), queue.groups.get(db, "g1")],
        "forget": lambda: queue.groups.forget(db, f"g{chance.randrange(99)}"),
        "options": lambda: queue.options(db),
        "queues": lambda: survey(db, list_queues(db, root=root), root=root),
        "store": lambda: str(describe(db)),
        "in time": lambda: queue.within(chance.choice([0.01, 5.0])).depth(db),
    }
    _one_of(c, "look", ways, rows=100, may=(Held,))


@operation(0.4, "mixed")
def administer(c: Client) -> None:
    admin, db = c.place.any[_any_queue(c)].admin, c.db
    leased = c.held[0][1][0] if c.held else None
    ways: dict[str, Callable[[], object]] = {
        "sweep": lambda: admin.sweep(db),
        "verify": lambda: admin.verify(db),
        "consumers": lambda: admin.consumers(db),
        "evict": lambda: admin.evict(db),
        "leases": lambda: admin.leases(db, 10),
        "counters": lambda: admin.counters(db),
        "age": lambda: admin.ready_since_ms(db),
        "delivery": lambda: leased and admin.delivery(db, leased.token),
    }
    _one_of(c, "admin", ways, rows=1_000)


# -- a queue that is deleted and made anew while all runs ------------------------------------------


@operation(2, "made")
def use_what_comes_and_goes(c: Client) -> None:
    queue, db, root, chance = c.place.made, c.db, c.place.root, c.random
    messages = [_anything(c, small=True) for _ in range(chance.choice([1, 1, 20]))]
    later = [replace(each, delay=0.5, ttl=None, key=None) for each in messages]
    options: dict[str, Any] = chance.choice([{}, {"auto_delete": 2.0}])
    options["levels"] = chance.choice([2, 3, 5, 10])
    held = c.made

    def create(tr: fdb.Transaction) -> None:
        Queue.create(tr, MADE, root=root, lease=2.0, **options)
        assert not queue.depth(tr).enqueued, "a new queue has messages"

    def make_anew(tr: fdb.Transaction) -> None:
        queue.delete(tr)
        create(tr)

    ways: dict[str, Callable[[], object]] = {
        "open": lambda: Queue.open(db, MADE, root=root, lease=2.0),
        "create": lambda: fdb.transactional(create)(db),
        "delete": lambda: queue.delete(db),
        "make anew": lambda: fdb.transactional(make_anew)(db),
        "sweep": lambda: queue.admin.sweep(db),
        "move": lambda: queue.move(db, MIXED),
    }

    def enqueue_in_a_transaction(tr: fdb.Transaction) -> None:
        told = {"levels": queue.options(tr).levels}
        some = [replace(each, headers={**(each.headers or {}), **told}) for each in later]
        list(queue.enqueue_many(tr, some))

    def receive_in_a_transaction(tr: fdb.Transaction) -> None:
        levels = queue.options(tr).levels
        for each in queue.receive_many(tr, 5):
            was = each.message.headers.get("levels", levels)
            assert was == levels, f"{each.id} came into a queue that was deleted: {was} levels"

    uses: dict[str, Callable[[], object]] = {
        "enqueue": lambda: queue.enqueue_many(db, messages),
        "enqueue in a transaction": lambda: fdb.transactional(enqueue_in_a_transaction)(db),
        "receive": lambda: held.extend(queue.receive_many(db, 5, wait=chance.choice([0.0, 1.0]))),
        "receive in a transaction": lambda: fdb.transactional(receive_in_a_transaction)(db),
        "ack": lambda: held and queue.ack(db, held.pop()),
        "fail": lambda: held and queue.release(db, held.pop(), error="simulated"),
        "look": lambda: [queue.depth(db), queue.peek(db), queue.options(db)],
    }
    chosen = ways if chance.random() < 0.4 else uses
    may = (QueueNotFound, QueueExists, OptionsMismatch)
    _one_of(c, "made", chosen, queue=MADE, rows=len(messages) + 10, may=may)


def tidy(place: Place) -> None:
    """Undo what would keep messages from being delivered, or stay for ever."""
    queue, db = place.mixed, place.db
    bounds = Bounds(messages=None, bytes=None, when_full="reject")
    queue.set_options(db, rate=None, keys=KeyLimits(rate=None), bounds=bounds, max_in_flight=None)
    for schedule in queue.schedules.list(db):
        queue.schedules.delete(db, schedule.name)
    for subscription in queue.subscriptions.list(db):
        queue.subscriptions.remove(db, subscription.name)
    for key in KEYS:
        queue.keys[key].reset(db)
    for limit in SHARED:
        queue.limits[limit].delete(db)
    for consumer in queue.streams.plans.list(db):
        queue.streams.plans.release(db, consumer.name)
        queue.streams.plans.forget(db, consumer.name)
    for name in SOURCES:
        queue.streams.importer(name).forget(db)
        queue.streams.sink(name).forget(db)
    Queue.open(db, MADE, root=place.root).set_options(db, auto_delete=None)
