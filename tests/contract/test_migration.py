"""Moving in from other queues: each of their messages comes once, in order."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from docs.examples import drain_curator, move_recipe
from fdbqueue import NewMessage, Queue, State
from fdbqueue.errors import TakenOver
from fdbqueue.store.binding import fdb, transactional
from tests.flaky import CONFLICT, UNKNOWN_COMMITTED, UNKNOWN_LOST, FlakyDatabase
from tests.taking import ready

Database = fdb.Database
Subspace = fdb.Subspace

PLANS = [[CONFLICT], [UNKNOWN_COMMITTED], [UNKNOWN_LOST], [None, UNKNOWN_COMMITTED, CONFLICT]]
PATH = "/app/queue"


@pytest.fixture
def old(space: Subspace) -> Subspace:
    """Where the recipe has its rows."""
    return space["old"]


@transactional
def push(tr: fdb.Transaction, old: Subspace, value: bytes, *place: int) -> None:
    """As in the recipes: an index behind the last one, and random bytes."""
    part = old[place[0]] if place else old
    rows = part.range()
    last = tr.snapshot.get_range(rows.start, rows.stop, limit=1, reverse=True).to_list()
    index = part.unpack(last[0].key)[0] + 1 if last else 0
    tr[part.pack((index, os.urandom(20)))] = value


@transactional
def pop(tr: fdb.Transaction, old: Subspace) -> bytes | None:
    rows = old.range()
    for row in tr.get_range(rows.start, rows.stop, limit=1):
        del tr[row.key]
        return bytes(row.value)
    return None


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_rows_of_the_queue_recipe_move_once_and_in_order(
    db: Database, queue: Queue, old: Subspace, plan: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more rows than a transaction takes
    monkeypatch.setattr(move_recipe, "MAX_ROWS", 3)
    given = [b"%d" % n for n in range(8)]
    for value in given:
        push(db, old, value)

    # When they are moved while commits fail, or seem to
    flaky = cast("Database", FlakyDatabase(db, plan))
    move_recipe.move(flaky, queue, old, move_recipe.plain)

    # Then each is there once, in the order in which it was pushed, and nothing is left behind
    assert ready(db, queue) == given
    assert pop(db, old) is None


def test_large_rows_move_in_several_transactions(db: Database, queue: Queue, old: Subspace) -> None:
    for n in range(25):
        push(db, old, bytes([n]) * 90_000)
    counted = FlakyDatabase(db, [])
    move_recipe.move(cast("Database", counted), queue, old, move_recipe.plain)
    assert counted.commits >= 3
    assert len(ready(db, queue)) == 25


def test_an_interrupted_move_goes_on_where_it_was(
    db: Database, queue: Queue, old: Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_recipe, "MAX_ROWS", 2)
    for n in range(6):
        push(db, old, b"%d" % n)

    def stopped(place: tuple[Any, ...], value: bytes) -> NewMessage:
        if value == b"3":
            raise KeyboardInterrupt
        return NewMessage(value)

    with pytest.raises(KeyboardInterrupt):
        move_recipe.move(db, queue, old, stopped)
    assert ready(db, queue) == [b"0", b"1"]

    move_recipe.move(db, queue, old, move_recipe.plain)
    assert ready(db, queue) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_row_that_is_popped_meanwhile_does_not_move(
    db: Database, queue: Queue, old: Subspace
) -> None:
    # Given a consumer that pops the first row when the move has read it
    push(db, old, b"a")
    push(db, old, b"b")
    popped: list[bytes | None] = []

    def before() -> None:
        if not popped:
            popped.append(pop(db, old))

    # When the rows are moved
    meanwhile = cast("Database", FlakyDatabase(db, [], before))
    move_recipe.move(meanwhile, queue, old, move_recipe.plain)

    # Then each row went to one of the two
    assert popped == [b"a"]
    assert ready(db, queue) == [b"b"]


def test_a_row_that_is_pushed_meanwhile_does_not_disturb_the_move(
    db: Database, queue: Queue, old: Subspace
) -> None:
    # Given a producer that pushes a row when the move has read
    push(db, old, b"a")
    late = iter([b"b"])
    moved: list[int] = []

    def before() -> None:
        moved.append(queue.depth(db).enqueued)
        for value in late:
            push(db, old, value)

    # When the rows are moved
    meanwhile = cast("Database", FlakyDatabase(db, [], before))
    move_recipe.move(meanwhile, queue, old, move_recipe.plain)

    # Then each transaction moved a row, and the last found nothing
    assert ready(db, queue) == [b"a", b"b"]
    assert moved == [0, 1, 2]


def test_the_lowest_priority_of_the_recipe_stays_the_first(
    db: Database, queue: Queue, old: Subspace
) -> None:
    for value, priority in ((b"c", 3), (b"a", 0), (b"d", 3), (b"z", 40), (b"b", 1), (b"y", 12)):
        push(db, old, value, priority)
    move_recipe.move(db, queue, old, move_recipe.by_priority)
    assert ready(db, queue) == [b"a", b"b", b"c", b"d", b"y", b"z"]


def test_items_of_the_staged_layer_move_behind_those_that_were_handed_out(
    db: Database, queue: Queue, old: Subspace
) -> None:
    # Given an item that a consumer was given and did not fetch, and its request for another
    db[old["conflict"].pack((b"random",))] = fdb.tuple.pack((b"handed out",))
    db[old["pop"].pack((0, b"random"))] = b""
    push(db, old["item"], fdb.tuple.pack((b"first",)))
    push(db, old["item"], fdb.tuple.pack((b"second",)))
    move_recipe.move_staged(db, queue, old)
    assert ready(db, queue) == [b"handed out", b"first", b"second"]


class Gone(Exception):
    """As kazoo's NoNodeError."""


class ZooKeeper:
    """The three methods of a ZooKeeper client that the drain calls, and Curator's puts.

    What it keeps of ZooKeeper: a parent numbers its children, also those that are gone; every
    creation has a number of its own; what is not there is an error.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.sequence = 0
        self.created = 0
        self.stop_at: dict[str, int] = {}

    def put(self, prefix: str, value: bytes) -> str:
        name = f"{prefix}{self.sequence:010}"
        self.nodes[name] = value, self.created
        self.sequence += 1
        self.created += 1
        return name

    def get_children(self, path: str) -> list[str]:
        assert path == PATH
        return sorted(self.nodes, reverse=True)  # in any order

    def get(self, path: str) -> tuple[bytes, Any]:
        value, created = self.nodes[self._name(path)]
        return value, SimpleNamespace(czxid=created)

    def delete(self, path: str) -> None:
        self._count("delete")
        del self.nodes[self._name(path)]

    def _name(self, path: str) -> str:
        parent, name = path.rsplit("/", 1)
        if parent != PATH or name not in self.nodes:
            raise Gone(path)
        return name

    def _count(self, call: str) -> None:
        """Raise at the planned call: the process is killed before it."""
        if call in self.stop_at:
            self.stop_at[call] -= 1
            if self.stop_at[call] < 0:
                raise KeyboardInterrupt


def items(*payloads: bytes) -> bytes:
    """A node of Curator, with one item or several."""
    parts = [b"\x01" + struct.pack(">i", len(each)) + each for each in payloads]
    return b"\x00\x01\x00\x01" + b"".join(parts) + b"\x02"


def by_priority(number: int) -> str:
    return f"queue-{int(number >= 0)}{number & 0xFFFFFFFF:08X}"


@pytest.fixture
def zk() -> ZooKeeper:
    return ZooKeeper()


def test_a_queue_of_curator_is_drained_in_its_order(
    db: Database, queue: Queue, zk: ZooKeeper
) -> None:
    zk.put("queue-", items(b"a"))
    zk.put("queue-", items(b"b", b"c", b""))  # putMulti
    zk.put("queue-", items())
    zk.put("queue-", items(b"d"))
    assert drain_curator.drain(zk, PATH, "queue", db, queue) == []
    assert ready(db, queue) == [b"a", b"b", b"c", b"", b"d"]
    assert zk.nodes == {}


def test_the_lowest_priority_of_curator_stays_the_first(
    db: Database, queue: Queue, zk: ZooKeeper
) -> None:
    for value, number in ((b"c", 3), (b"n", -1), (b"a", 0), (b"d", 3), (b"z", 40), (b"y", 12)):
        zk.put(by_priority(number), items(value))
    drain_curator.drain(zk, PATH, "priority", db, queue)
    assert ready(db, queue) == [b"n", b"a", b"c", b"d", b"y", b"z"]


@pytest.mark.parametrize(
    ("kind", "prefix"), [("priority", by_priority(-7)), ("delay", "queue-|000003E8|")]
)
def test_items_that_curator_requeued_are_the_first(
    db: Database, queue: Queue, zk: ZooKeeper, kind: str, prefix: str
) -> None:
    zk.put(prefix, items(b"later"))
    zk.put("queue-", items(b"requeued"))
    assert drain_curator.drain(zk, PATH, kind, db, queue) == []
    assert ready(db, queue) == [b"requeued", b"later"]


def test_priorities_are_mapped_as_told(db: Database, queue: Queue, zk: ZooKeeper) -> None:
    for number in (100, 200, 300):
        zk.put(by_priority(number), items(b"%d" % number))
    drain_curator.drain(zk, PATH, "priority", db, queue, lambda number: number // 100)
    assert [message.priority for message in queue.peek(db, 9)] == [3, 2, 1]


def test_a_delay_of_curator_is_the_time_of_the_message(
    db: Database, queue: Queue, zk: ZooKeeper
) -> None:
    until = datetime(2031, 5, 17, 12, 30, tzinfo=UTC)
    zk.put(f"queue-|{int(until.timestamp() * 1000):08X}|", items(b"later"))
    zk.put(f"queue-|{1_000:08X}|", items(b"now"))
    drain_curator.drain(zk, PATH, "delay", db, queue)
    (later,) = queue.messages(db, state="scheduled")
    assert (later.message.payload, later.due_at_ms) == (b"later", until.timestamp() * 1000)
    assert ready(db, queue) == [b"now"]


def test_ids_of_curator_are_headers_by_which_messages_are_removed(
    db: Database, queue: Queue, zk: ZooKeeper
) -> None:
    for item_id in ("17", "a|b", "17"):
        zk.put(f"queue-|{item_id}|", items(item_id.encode()))
    drain_curator.drain(zk, PATH, "id", db, queue)
    assert queue.purge(db, match="item_id = '17'").taken == 2
    (left,) = queue.peek(db, 9)
    assert left.headers == {"item_id": "a|b"}


def test_a_simple_queue_has_payloads_as_they_are(db: Database, queue: Queue, zk: ZooKeeper) -> None:
    zk.put("qn-", b"a")
    zk.put("qn-", items(b"b"))
    drain_curator.drain(zk, PATH, "simple", db, queue)
    assert ready(db, queue) == [b"a", items(b"b")]


@pytest.mark.parametrize("deletions", range(7))
@pytest.mark.parametrize("plan", [[], *PLANS], ids=str)
def test_whenever_a_drain_is_killed_each_item_comes_once(
    db: Database,
    queue: Queue,
    zk: ZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    deletions: int,
    plan: Sequence[str],
) -> None:
    # Given batches of three nodes, and a drain that is killed before one of its deletions
    monkeypatch.setattr(drain_curator, "MAX_NODES", 3)
    given = [b"%d" % n for n in range(7)]
    for each in given:
        zk.put("queue-", items(each))
    zk.stop_at = {"delete": deletions}
    flaky = cast("Database", FlakyDatabase(db, plan))
    with pytest.raises(KeyboardInterrupt):
        drain_curator.drain(zk, PATH, "queue", flaky, queue)

    # When it begins again, after a producer has put one more
    zk.stop_at = {}
    zk.put("queue-", items(b"7"))
    drain_curator.drain(zk, PATH, "queue", db, queue)

    # Then each item was enqueued once, in order
    assert ready(db, queue) == [*given, b"7"]
    assert zk.nodes == {}


def test_of_two_drains_at_once_one_goes_on(
    db: Database, queue: Queue, zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a drain that has read, and not yet enqueued, when another one drains everything
    zk.put("queue-", items(b"a"))
    get = zk.get

    def late(path: str) -> tuple[bytes, Any]:
        found = get(path)
        monkeypatch.setattr(zk, "get", get)
        drain_curator.drain(zk, PATH, "queue", db, queue)
        return found

    monkeypatch.setattr(zk, "get", late)

    # Then the first finds that the import is elsewhere
    with pytest.raises(TakenOver):
        drain_curator.drain(zk, PATH, "queue", db, queue)
    assert ready(db, queue) == [b"a"]


def test_a_queue_that_was_made_anew_loses_nothing(
    db: Database, queue: Queue, zk: ZooKeeper
) -> None:
    # Given a queue that was drained, and then made again: its numbers begin anew
    zk.put("queue-", items(b"a"))
    drain_curator.drain(zk, PATH, "queue", db, queue)
    zk.sequence = 0
    zk.put("queue-", items(b"b"))
    drain_curator.drain(zk, PATH, "queue", db, queue)
    assert ready(db, queue) == [b"a", b"b"]


def test_what_cannot_be_read_stays_and_is_told(db: Database, queue: Queue, zk: ZooKeeper) -> None:
    good = items(b"good")
    bad = [
        zk.put("queue-", value)
        for value in (b"", b"\x00\x01\x00\x02\x02", good[:-1], good + b"\x02", good[:-2] + b"\x02")
    ]
    bad.append(zk.put("queue-", b"\x00\x01\x00\x01\x01\xff\xff\xff\xfb\x02"))  # a negative length
    foreign = zk.put("lock-", b"")
    zk.put("queue-", good)
    assert drain_curator.drain(zk, PATH, "queue", db, queue) == sorted([*bad, foreign])
    assert ready(db, queue) == [b"good"]
    assert len(zk.nodes) == 7


def test_a_drain_of_another_kind_takes_nothing(db: Database, queue: Queue, zk: ZooKeeper) -> None:
    zk.put(by_priority(1), items(b"a"))
    for kind in ("queue", "delay", "id", "simple"):
        assert len(drain_curator.drain(zk, PATH, kind, db, queue)) == 1
    assert queue.depth(db).enqueued == 0
    assert State.READY not in {each.state for each in queue.messages(db)}
