"""docs/format.md says what is stored: its golden vectors and tables are what the code reads and
writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields, replace

from fdbqueue.consumers.leader import AWAY, away
from fdbqueue.errors import CorruptData
from fdbqueue.messages import lookup, run
from fdbqueue.messages.streams import packing
from fdbqueue.schema import catalogue
from fdbqueue.schema.codec import (
    pack,
    pack_counters,
    pack_index,
    pack_time,
    unpack,
    unpack_counters,
    unpack_index,
    unpack_time,
)
from fdbqueue.schema.consumers import (
    ConsumerRecord,
    ConsumerRef,
    Definition,
    Holder,
    Listed,
    Request,
    Running,
    Session,
    WaitingCalls,
    Work,
)
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.keys import KINDS, SORTED_INDEX, OnceKeys, QueueKeys, RootKeys, What
from fdbqueue.schema.leases import (
    Lease,
    pack_expiry,
    pack_until,
    split_places,
    unpack_expiry,
    unpack_until,
)
from fdbqueue.schema.records import (
    Backlog,
    BacklogPlace,
    DeadLetter,
    DeadRecord,
    DedupRecord,
    Delayed,
    EmptySince,
    EventFields,
    GroupEnd,
    GroupRecord,
    HistoryLine,
    Kept,
    Limited,
    Moved,
    Paced,
    Pause,
    Place,
    PlannedPlace,
    Reached,
    ScheduleProgress,
    Tally,
    Timer,
    unpack_failure,
    unpack_limits,
)
from fdbqueue.schema.records import Callback as GroupCallback
from fdbqueue.schema.records import ScheduleRecord as ScheduleDefinition
from fdbqueue.schema.streams import (
    Claimed,
    Planned,
    PlannerState,
    SinkState,
    Stage,
    StagedAttempt,
    StagedPiece,
    StagedRun,
    StagingAttempt,
)
from fdbqueue.store.binding import fdb
from fdbqueue.store.clocks import Moment
from fdbqueue.values.limits import Allowed
from fdbqueue.values.model import Death, Depth, Due, Failure, Position, parse_id
from fdbqueue.values.options import QueueOptions
from fdbqueue.values.rates import Rate
from fdbqueue.values.schedules import Timing
from fdbqueue.values.states import State

PAGE = Path(__file__).parent.parent.parent / "docs" / "format.md"

QUEUE = RootKeys(fdb.Subspace(("fdbqueue",))).queue("orders")
POSITION = Position(5, 300, bytes.fromhex("00112233445566ff"))
ID = "05-00000000012c-00112233445566ff"
DUE = Due(5, 1_700_000_060_000, POSITION.random)
CLAIM = bytes(range(16))
TOKEN = QUEUE.token(CLAIM, QUEUE.ready_key(POSITION))
CONSUMER = bytes(range(16, 32))
PLAIN = Envelope(b"tea", 1_700_000_000_000)
PACKED = PLAIN.pack()
FULL = Envelope(
    payload=b"tea",
    priority=7,
    enqueued_at_ms=1_700_000_000_000,
    headers={"region": "eu", "weight": 2.5},
    attempts=2,
    id=ID,
    expires_at_ms=1_700_000_100_000,
    max_attempts=3,
    backoff={"wait": "wait_fixed", "seconds": 5.0},
    last_error="no route",
    unique="order-17",
    death=Death("rejected", 1_700_000_050_000, 2, "orders", ID),
    content_type="text/plain",
    key="customer-7",
    alone=1,
    released=1,
    former_key="customer-7",
    slot=2,
    window=1,
    last_value="eu",
    schedule="nightly",
    cancelled=True,
    keep_result_ms=60_000,
    group="load",
    limits={"api": "stripe"},
    former_limits={"api": "stripe"},
    slots=(3,),
    deaths=1,
    failures=2,
)
CHUNKED = Envelope(
    b"",
    1_700_000_000_000,
    compression="zlib",
    raw_size=500_000,
    chunks=bytes(range(12)),
    chunk_bytes=180_000,
)
LEASE = Lease(
    POSITION, 90_000_000, 1_700_000_030_000, "billing", PACKED, True, CLAIM, True, 2, 30_000
)
NAMED = [TOKEN[16:], QUEUE.token(b"", QUEUE.ready_key(Position(0, 7, bytes(8))))]
PLANNED = Lease(POSITION, 0, 0, "billing", PACKED)
DELAYED = Delayed(Position(5, 0, POSITION.random), PACKED)
REQUEST = Request(10, 30.0, "billing", waits=True, alive_until=95_000_000)
ASKED = replace(REQUEST, priority=2, max_bytes=10_000, above=65_536)
EUROPE = QUEUE.line_of("europe")
RECORD = ConsumerRecord("billing", 1, 1_700_000_000_000)
WAITER = ConsumerRecord("", 0, 1_700_000_000_000, 90_000_000, 1_700_000_000_000)
SESSION = Session(
    "host-1",
    4711,
    1_700_000_000_000,
    90_000_000,
    1_700_000_005_000,
    work=(
        Work("orders", "shop", "pack", 8, 1, 100, 2, 40, (Running(ID, "k", 1, 1_700_000_004_000),)),
    ),
    waits=WaitingCalls("orders", 3, 1_700_000_002_000),
)
UNTIL = dict(
    zip(NAMED, (Moment(120_000_000, 1_700_000_060_000), Moment(90_000_000, 5)), strict=True)
)
HOLDER = Holder(CLAIM, 90_000_000, 1_700_000_030_000)
FAILED = Failure(1_700_000_000_000, 1_700_000_002_500, "billing", "no route", "Traceback …")
LETTER = DeadLetter(POSITION, PACKED, "rejected", 1_700_000_050_000)
PLANNER = PlannerState(bytes(range(16)), CONSUMER, 3, 4, {5: b"\x15\x07\x01\x00"})
PLAN = Planned(
    1_700_000_000_000,
    Stage.SEALED,
    3,
    120,
    (Claimed(CLAIM, {5: 2}, True), Claimed(CONSUMER, {5: 1}, False, b"\x01")),
)
SINK = SinkState(1, 2, 100, 50, 49, (0, 1, 20), 1_700_000_000_000)
TICKING = ScheduleDefinition(
    Timing("0 3 * * *", None, "Europe/Berlin", 0), "skip", "last", False, 60_000, PLAIN
)
GROUP = GroupRecord(
    "settled",
    2,
    True,
    1_700_000_000_000,
    GroupCallback(b"", "wholes", 5_000, 60_000, PLAIN),
)
ENDED_GROUP = replace(GROUP, end=GroupEnd("complete", 1_700_000_060_000, ID, Tally(1, 1, 0)))
TICKED = ScheduleProgress(1_700_000_060_000, DUE.to_id(), 1_699_913_600_000, ID, 7, 1)
ATTEMPTS = [StagingAttempt(CLAIM, 2, 100, 4_000, "orders")]
ATTEMPT = StagedAttempt(2, 100, 4_000, 1_700_000_000_000)
RUNS = [
    StagedRun(5, 3, [PACKED]),
    StagedRun(5, 6, [PACKED, PACKED]),
    StagedRun(5, 3, [PACKED], 1_700_000_060_000, "d-1", False),
]
COUNTERS = (3, 1, 0, 0, 0, 1, 0, 1, 0, 0, 3)
EVENT = ("lease", ID, 5, 1, "billing", 1_700_000_000_000, ID)
MOVED_EVENT = (*EVENT[:6], "05-00000000012d-00112233445566ff")
STAMP = bytes(range(10))
DEFINITION = Definition("audit")
SORTED = Position(
    5, SORTED_INDEX, fdb.tuple.pack(("10:30", 300)) + bytes.fromhex("00112233445566ff")
)
SECOND, THIRD = (run.member(POSITION, n) for n in (2, 3))
PAUSE = catalogue.Pause(1_700_000_000_000, "ann")
META = catalogue.Meta(CLAIM.hex(), QueueOptions(levels=3, paused=True).to_json(), pause=PAUSE)
EMPTY = b""
STRIPE = ("api", "stripe")
PLACES: dict[str, Place] = {
    "ready": POSITION,
    "delayed": DUE,
    "dead": DeadRecord(90_000_000, b"\0\0" + POSITION.random),
    "turn": BacklogPlace("customer-7", 2, POSITION.random),
    "turn of a limit": BacklogPlace(STRIPE, 2, POSITION.random),
    "planned": PlannedPlace(CLAIM, 1),
}


class Vector(NamedTuple):
    """A row: a key, what is stored there, and what reading that gives."""

    key: bytes
    value: bytes
    read: Callable[[bytes], Any] = bytes
    wanted: Any = None


def record(key: bytes, made: Any) -> Vector:
    return Vector(key, made.pack(), type(made).unpack, made)


def number(key: bytes, made: int) -> Vector:
    return Vector(key, pack_index(made), unpack_index, made)


def staged(value: bytes) -> object:
    return packing.runs([StagedPiece.unpack(value)])


def line(*events: EventFields) -> bytes:
    """The stored line of events that differ in the message alone."""
    transition, _, _, _, consumer, at_ms, _ = events[0]
    moved = [Moved(*e[1:4], None if e[6] == e[1] else e[6]) for e in events]
    return HistoryLine(transition, consumer, at_ms, moved).pack()


def events(value: bytes) -> list[EventFields]:
    return HistoryLine.unpack(value).events


def event_key(n: int) -> bytes:
    """The key of a line, once its commit has put the versionstamp into the operand."""
    operand = QUEUE.event.new(n)
    key, at = operand[:-4], int.from_bytes(operand[-4:], "little")
    return key[:at] + STAMP + key[at + len(STAMP) :]


def expiry(value: bytes) -> tuple[int, list[bytes]]:
    wall_ms, places = unpack_expiry(value)
    return wall_ms, split_places(places)


KEPT = Kept(State.DONE, 1_700_000_100_000, "application/json", b"42")
PACED = Paced(1_700_000_000_600_000, Rate(600_000, 20), Timer(512, 1_700_000_000_600))
VECTORS: dict[str, Vector] = {
    "META": record(QUEUE.meta, META),
    "READY": Vector(QUEUE.ready_key(POSITION), PACKED, Envelope.unpack, PLAIN),
    "READY, every field": record(QUEUE.ready_key(POSITION), FULL),
    "READY, chunks": record(QUEUE.ready_key(POSITION), CHUNKED),
    "READY, block": Vector(
        QUEUE.ready_key(THIRD),
        run.pack_row([PACKED, PACKED]),
        lambda value: [
            (each.key, each.value)
            for each in run.alone(QUEUE, [run.Alone(QUEUE.ready_key(THIRD), value)])
        ],
        [(QUEUE.ready_key(SECOND), PACKED), (QUEUE.ready_key(THIRD), PACKED)],
    ),
    "READY, sorted": Vector(QUEUE.ready_key(SORTED), PACKED, Envelope.unpack, PLAIN),
    "TAIL": number(QUEUE.tail(5), 300),
    "FENCE": Vector(QUEUE.fence(5, 300), EMPTY),
    "LEASE": record(run.token_key(QUEUE, TOKEN), LEASE),
    "LEASE, block": Vector(
        run.lease_key(QUEUE, THIRD),
        replace(LEASE, position=THIRD, envelope=run.pack_row([PACKED, PACKED])).pack(),
        lambda value: [
            Lease.unpack(each.value).position
            for each in run.alone(QUEUE, [run.Alone(run.lease_key(QUEUE, THIRD), value)])
        ],
        [SECOND, THIRD],
    ),
    "LEASE, planned": record(QUEUE.planned(CLAIM, 1), PLANNED),
    "LEASE, planned block": Vector(
        QUEUE.planned(CLAIM, 2),
        replace(PLANNED, position=THIRD, envelope=run.pack_row([PACKED, PACKED])).pack(),
        lambda value: [
            (each.key, Lease.unpack(each.value))
            for each in run.alone(QUEUE, [run.Alone(QUEUE.planned(CLAIM, 2), value)])
        ],
        [
            (QUEUE.planned(CLAIM, 1), replace(PLANNED, position=SECOND)),
            (QUEUE.planned(CLAIM, 2), replace(PLANNED, position=THIRD)),
        ],
    ),
    "EXPIRY": Vector(
        QUEUE.expiry(90_000_000, CLAIM),
        pack_expiry(1_700_000_030_000, NAMED),
        expiry,
        (1_700_000_030_000, NAMED),
    ),
    "DUE": record(QUEUE.delayed(*DUE), DELAYED),
    "DUE, end of a message": Vector(QUEUE.tidying(1_700_000_100_000, What.EXPIRED, ID), EMPTY),
    "DUE, end of a result": Vector(QUEUE.tidying(1_700_000_100_000, What.RESULT, ID), EMPTY),
    "DUE, end of a window": Vector(
        QUEUE.tidying(1_700_000_600_000, What.WINDOW, "1700000000000"), EMPTY
    ),
    "DUE, group to forget": Vector(QUEUE.tidying(1_700_604_860_000, What.GROUP, "load"), EMPTY),
    "DUE, callback to try again": record(
        QUEUE.entry(256, 1_700_000_180_000, What.GROUP, "load"), Pause(120_000)
    ),
    "DUE, key to look at": Vector(
        QUEUE.entry(261, 1_700_000_000_600, What.GATE, "customer-7"), EMPTY
    ),
    "DUE, rate to forget": Vector(QUEUE.entry(*PACED.timer, What.REST, "customer-7"), EMPTY),
    "EARLIEST": Vector(QUEUE.earliest(DUE.level), pack_time(DUE.due_ms), unpack_time, DUE.due_ms),
    "LINE, request": record(QUEUE.line.request(90_000_000, CLAIM), REQUEST),
    "SUBSCRIPTION": record(QUEUE.subscription("audit"), DEFINITION),
    "CURSOR": Vector(
        QUEUE.cursor("audit", 5),
        QUEUE.place(POSITION) + b"\x00",
        lambda v: (QUEUE.parse_place(v), QUEUE.passed(v)),
        (300, 300),
    ),
    "CURSOR, holder": record(QUEUE.holder("audit"), HOLDER),
    "CONSUMER": record(QUEUE.consumer(CLAIM, CONSUMER), RECORD),
    "CONSUMER, without a session": record(QUEUE.consumer(EMPTY, CONSUMER), WAITER),
    "STATE": record(QUEUE.state("europe", 2, 1, CONSUMER), Listed(CLAIM, 89_000_000)),
    "GUARD": record(QUEUE.guard("europe"), ConsumerRef(CONSUMER, 1, CLAIM, "europe")),
    "SLEEPER": Vector(QUEUE.sleeper("", 1, 89_000_000, CONSUMER), CLAIM),
    "COUNT": Vector(
        QUEUE.count(5), pack_counters(COUNTERS), lambda v: unpack_counters(v, 11), COUNTERS
    ),
    "CHANGE": number(QUEUE.change, 12),
    "CHANGE, of a subscription": number(QUEUE.changes_of("europe"), 12),
    "ONCE": number(QUEUE.once(28, CLAIM[:12]), 0),
    "LINE": number(QUEUE.line.led, 95_000_000),
    "LINE, of a subscription": Vector(EUROPE.led, pack_index(95_000_000)),
    "LINE, leader of a subscription": Vector(EUROPE.leader, CLAIM),
    "LINE, request of a subscription": record(EUROPE.request(90_000_000, CLAIM), ASKED),
    "LINE, leader": Vector(QUEUE.line.leader, CLAIM),
    "LINE, leader away": Vector(QUEUE.line.leader, CLAIM + AWAY, away, True),
    "DEDUP": record(QUEUE.dedup(1_700_000_000_000, "d-1"), DedupRecord(ID, 1_700_000_300_000)),
    "DEAD": record(QUEUE.dead(90_000_000, b"\0\0" + POSITION.random), LETTER),
    "FAILURE": Vector(QUEUE.failure(ID, 2), pack(FAILED), unpack_failure, FAILED),
    "CHUNK": Vector(QUEUE.chunk(bytes(range(12)), 1), b"tea"),
    "EVENT": Vector(event_key(7), line(EVENT), events, [EVENT]),
    "EVENT, of two messages": Vector(
        event_key(8), line(EVENT, MOVED_EVENT), events, [EVENT, MOVED_EVENT]
    ),
    **{
        f"MOVED, {name}": Vector(
            QUEUE.moved(ID), lookup.pointer(QUEUE, place), partial(lookup.pointed, QUEUE), place
        )
        for name, place in PLACES.items()
    },
    "UNIQUE": Vector(QUEUE.unique("order-17"), ID.encode()),
    "IDLE": record(QUEUE.idle, EmptySince(17, 1_700_000_000_000)),
    "IMPORTED": Vector(QUEUE.imported("orders.csv"), b"2"),
    "WAITING": record(QUEUE.waiting("customer-7", 1, POSITION.random), DELAYED),
    "WAITING, of a limit": record(
        QUEUE.waiting(STRIPE, 2, POSITION.random), Delayed(POSITION, PACKED)
    ),
    "SLOT, of a limit": Vector(QUEUE.slot(STRIPE, 2), ID.encode()),
    "SLOT": Vector(QUEUE.slot("customer-7", 2), ID.encode()),
    "BACKLOG": record(QUEUE.backlog("customer-7"), Backlog(1_700_000_000_000, Allowed(3, None))),
    "BACKLOG, after a change": record(
        QUEUE.backlog("customer-7"), Backlog(1_700_000_000_000, None)
    ),
    "BACKLOG, with a rate": record(
        QUEUE.backlog("customer-7"), Backlog(1_700_000_000_000, Allowed(3, None, Rate(600_000, 20)))
    ),
    "BACKLOG, count": Vector(
        QUEUE.backlog_count("customer-7", 0),
        pack_counters((12,)),
        lambda v: unpack_counters(v, 1),
        (12,),
    ),
    "LIMITS": Vector(
        QUEUE.limits("customer-7"),
        pack({"concurrency": 5, "window": None, "weight": 3, "paused": True}),
        unpack_limits,
        {"concurrency": 5, "window": None, "weight": 3, "paused": True},
    ),
    "LIMITS, rate": Vector(
        QUEUE.limits("customer-7"),
        pack({"rate": "100/min, burst 20"}),
        unpack_limits,
        {"rate": "100/min, burst 20"},
    ),
    "RATE": record(QUEUE.rate("customer-7"), PACED),
    "IN_FLIGHT": number(QUEUE.in_flight, 3),
    "PACE": record(QUEUE.pace, Reached(1_700_000_000_600_000, Rate(600_000, 20))),
    "CANCELS": number(QUEUE.cancels, 3),
    "RESULT": record(QUEUE.result(ID), KEPT),
    "GROUP": record(QUEUE.group("load"), GROUP),
    "GROUP, ended": record(QUEUE.group("load"), ENDED_GROUP),
    "GROUP, member": Vector(QUEUE.member("load", ID), EMPTY),
    "GROUP, seal": Vector(QUEUE.seal("load"), EMPTY),
    "GROUP, counters": Vector(
        QUEUE.tally("load", ID),
        pack_counters(Tally(3, -1, 0)),
        lambda v: Tally(*unpack_counters(v, 3)),
        Tally(3, -1, 0),
    ),
    "WINDOW": Vector(QUEUE.window("customer-7", 1), ID.encode()),
    "PLANNER": record(QUEUE.planner("stream"), PLANNER),
    "PLAN": record(QUEUE.plan("stream", 4), PLAN),
    "SINK": record(QUEUE.sink("load"), SINK),
    "SINK, attempts": Vector(
        QUEUE.counting("load", 0),
        pack(ATTEMPTS),
        lambda v: unpack(v, list[StagingAttempt], "attempts"),
        ATTEMPTS,
    ),
    "STAGED": Vector(
        QUEUE.staged("load", 2, CLAIM, 0), StagedPiece(1, pack(RUNS)).pack(), staged, RUNS
    ),
    "UNTIL": Vector(QUEUE.until(CLAIM), pack_until(UNTIL), unpack_until, UNTIL),
    "LATEST": Vector(QUEUE.latest("eu"), ID.encode(), bytes.decode, ID),
    "LATEST, replaced": Vector(QUEUE.replaced("eu", ID), EMPTY),
    "SCHEDULE": record(QUEUE.schedule("nightly"), TICKING),
    "SCHEDULE, progress": record(QUEUE.progress("nightly", 0), TICKED),
    "ATTEMPT": record(QUEUE.attempt("load", 2, CLAIM), ATTEMPT),
}


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the page."""
    section = PAGE.read_text().split(f"\n{heading}\n", 1)[1]
    found = re.search(r"(?:^\|.*\n)+", section + "\n", re.MULTILINE)
    assert found is not None
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in found[0].splitlines()]
    return rows[2:]


def plain(cell: str) -> str:
    return cell.strip("`")


def documented() -> dict[str, tuple[bytes, bytes]]:
    return {
        name: (QUEUE.prefix + bytes.fromhex(plain(key)), bytes.fromhex(plain(value)))
        for name, key, value in table("## Golden vectors")
    }


def row(name: str) -> str:
    """The row of the page for a vector."""
    key, value = VECTORS[name].key[len(QUEUE.prefix) :].hex(), VECTORS[name].value.hex()
    return f"| {name} | `{key}` | {f'`{value}` ' if value else ''}|"


@pytest.mark.parametrize("name", VECTORS)
def test_the_page_has_the_bytes_that_are_written(name: str) -> None:
    assert documented().get(name) == VECTORS[name][:2], f"docs/format.md should say: {row(name)}"


@pytest.mark.parametrize("name", VECTORS)
def test_the_bytes_of_the_page_are_read_as_what_they_mean(name: str) -> None:
    _, value = documented()[name]
    vector = VECTORS[name]
    assert vector.wanted is None or vector.read(value) == vector.wanted


def test_every_kind_of_key_has_a_vector_and_the_page_has_no_other() -> None:
    assert {name.split(",")[0] for name in VECTORS} == {kind.name for kind in KINDS}
    assert set(documented()) == set(VECTORS)
    kinds = {kind.name: kind for kind in KINDS}
    for name, vector in VECTORS.items():
        every = QUEUE.kind(kinds[name.split(",")[0]])
        assert every.start <= vector.key < every.stop


def test_the_page_has_the_keys_of_each_row_of_the_table_and_no_others() -> None:
    page = PAGE.read_text()
    below = page.split("\n### Limits that queues share\n")[1].split("\n####")[0]
    named = re.findall(r"[A-Z_]+ `\(\d+[^`]*\)`(?:, `\(\d+[^`]*\)`)*", page.replace(below, ""))
    found = {key for each in named for key in re.findall(r"`\((\d+[^`]*)\)`", each)}
    forms = {(int(key.split(",")[0]), key.count(",")) for key in found}
    assert forms == {(row.number, len(row.parts)) for row in QueueKeys.table()}


def test_the_page_lists_every_field_of_an_envelope_with_its_name_and_default() -> None:
    listed = [
        (plain(stored), plain(name), plain(default))
        for stored, name, _, default, _ in table("### Envelope")
    ]
    assert listed == [
        (each.encode_name, each.name, "required" if each.required else _shown(each))
        for each in fields(Envelope)
    ]


def _shown(field: FieldInfo) -> str:
    made = {} if field.default is NODEFAULT else field.default
    return repr(made).replace("None", "nil")


def test_the_page_lists_the_counters_in_their_order() -> None:
    listed = [(int(n), plain(name)) for n, name, _ in table("### Counters")]
    assert listed == list(enumerate(Depth.__struct_fields__))


def test_the_page_lists_every_option_with_its_default() -> None:
    listed = {plain(name): json.loads(plain(default)) for name, default in table("### META")}
    assert listed == QueueOptions().to_json()


def test_the_prefix_and_the_catalogue_of_the_page_are_those_of_the_code() -> None:
    root = RootKeys(fdb.Subspace(("fdbqueue",)))
    wanted = {
        "the entry of queue `orders` in the catalogue": root.name("orders"),
        "the prefix of queue `orders`": QUEUE.prefix,
        "a record of the catalogue, minute 28": root.once(28, CLAIM),
    }
    assert isinstance(root.once, OnceKeys)
    assert {
        what: bytes.fromhex(plain(key)) for what, key in table("## Where a queue lies")
    } == wanted


def test_the_page_has_the_bytes_of_a_session() -> None:
    root = RootKeys(fdb.Subspace(("fdbqueue",)))
    wanted = {
        "SESSION": (root.session(CLAIM), SESSION.pack()),
        "SESSION, in the order of expiry": (root.session_expiry(105_000_000, CLAIM), EMPTY),
        "SESSION, its queue": (root.session_queue(CLAIM, "orders"), EMPTY),
    }
    listed = {
        name: (bytes.fromhex(plain(key)), bytes.fromhex(plain(value)))
        for name, key, value in table("## Sessions")
    }
    assert listed == wanted
    assert Session.unpack(wanted["SESSION"][1]) == SESSION


def test_the_page_has_the_bytes_of_limits_that_queues_share() -> None:
    keys = RootKeys(fdb.Subspace(("fdbqueue",))).limits
    holder = Limited("orders", ID)
    backlog = Backlog(1_700_000_000_000, Allowed(3, None))
    wanted = {
        "WAITING": (keys.waiting(STRIPE, 2, POSITION.random), holder.pack()),
        "SLOT": (keys.slot(STRIPE, 2), holder.pack()),
        "BACKLOG": (keys.backlog(STRIPE), backlog.pack()),
        "BACKLOG, count": (keys.backlog_count(STRIPE, 0), pack_index(12)),
        "LIMITS": (keys.limits(STRIPE), pack({"concurrency": 3, "rate": "100/min"})),
        "RATE": (keys.rate(STRIPE), PACED.pack()),
        "DUE, rate to forget": (keys.entry(*PACED.timer, What.REST, STRIPE), EMPTY),
    }
    listed = {
        name: (bytes.fromhex(plain(key)), bytes.fromhex(plain(value)))
        for name, key, value in table("### Their bytes")
    }
    rows = "\n".join(
        f"| {name} | `{key.hex()}` | `{value.hex()}` |" for name, (key, value) in wanted.items()
    )
    assert listed == wanted, f"docs/format.md should say: {rows}"
    assert Limited.unpack(wanted["SLOT"][1]) == holder


def test_ids_name_the_place_of_the_enqueue() -> None:
    wanted = {ID: POSITION, THIRD.to_id(): THIRD, DUE.to_id(): DUE}
    assert {plain(text) for text, _ in table("## Ids")} == set(wanted)
    for text, place in wanted.items():
        assert parse_id(text) == place
        assert place.to_id() == text


VERSIONED = [
    name
    for name, vector in VECTORS.items()
    if vector.value[:1] == b"\x01" and vector.wanted is not None
]


@pytest.mark.parametrize("name", VERSIONED)
def test_a_value_of_another_version_is_refused(name: str) -> None:
    vector = VECTORS[name]
    for version in (b"\x02", b"\x00"):
        with pytest.raises(CorruptData):
            vector.read(version + vector.value[1:])
