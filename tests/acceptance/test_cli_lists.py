"""Listings: what they show, how they are cut and gone on with, and what programs get."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from fdbqueue import NewMessage, Queue, fdb, transactional
from tests.acceptance.running import Fdbq
from tests.consumers import register
from tests.progress import Steps
from tests.taking import take

ERRORS = ("connection refused by the bank", "no such account")


@pytest.fixture
def other(db: fdb.Database, name: str) -> Iterator[Queue]:
    """Another queue."""
    other = Queue.create(db, f"{name}-other")
    yield other
    other.delete(db)


@pytest.fixture
def crowd(db: fdb.Database, name: str) -> Iterator[list[str]]:
    """Queues whose names have numbers."""
    names = [f"{name}-{n}" for n in (1, 2, 10)]
    for each in names:
        Queue.create(db, each)
    yield names
    for each in names:
        Queue(each).delete(db)


def test_a_message_shows_how_its_attempts_failed_in_whatever_state_it_is(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    queue.set_options(db, max_attempts=2)
    message_id = queue.enqueue(db, b"x")
    for error in ERRORS:
        (delivery,) = queue.receive_many(db, 1, consumer="billing")
        try:
            raise LookupError(error)
        except LookupError as caught:
            queue.settle(db, [delivery], {message_id: caught})
        queue.retry(db, states="retrying")

    shown = fdbq.ok("message", "show", name, message_id).out.splitlines()
    failed = [n for n, line in enumerate(shown) if line.startswith("failed 2")]
    told = [shown[n].split(" by billing: ")[1] for n in failed]
    assert told == [f"LookupError: {error}" for error in reversed(ERRORS)]
    assert shown[failed[0] + 1] == "  Traceback (most recent call last):"
    assert any("raise LookupError" in line for line in shown)
    known = fdbq.ok("message", "show", name, message_id, "--json").json["failures"]
    assert [each["consumer"] for each in known] == ["billing"] * 2
    (letter,) = fdbq.ok("message", "find", name, "--state", "dead", "--json").json
    assert letter["failures"] == known


def test_dead_letters_show_their_cause_and_say_that_there_are_more(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    queue.set_options(db, max_attempts=1)
    queue.enqueue_many(db, [b"x"] * 5)
    held = queue.receive_many(db, 5)
    queue.release(db, held[:3], error=ERRORS[0])
    queue.release(db, held[3:], error=ERRORS[1])

    first = fdbq.ok("message", "find", name, "--state", "dead", "--max", "2")
    order = [letter.id for letter in queue.dead.list(db)]
    rest = fdbq.ok("message", "find", name, "--state", "dead", "--after", order[1], "--json")

    assert all(any(e in line for e in ERRORS) for line in first.out.splitlines()[2:])
    assert "the first 2 dead letters of 5" in first.err
    assert f"--after {order[1]}" in first.err
    assert [each["id"] for each in rest.json] == order[2:]
    assert rest.err == ""

    # And they are redriven by what they died of
    done = fdbq.ok(
        "message", "retry", name, "--error", "account", "--since", "1h", "--yes", "--json"
    )
    assert done.json == {"queue": name, "retried": 2}
    none = fdbq("message", "retry", name, "--error", "no such thing", "--yes")
    assert (none.code, "matches" in none.err) == (1, True)
    paced = fdbq.ok("message", "retry", name, "--all", "--rate", "1000", "--yes")
    assert "retried 3 messages" in paced.out


@pytest.mark.parametrize("how", ["dies", "is moved"])
def test_a_message_that_went_elsewhere_is_shown_with_where(
    db: fdb.Database, fdbq: Fdbq, name: str, other: Queue, how: str
) -> None:
    queue = Queue.open(db, name)
    message_id = queue.enqueue(db, b"a")
    if how == "dies":
        queue.set_options(db, dead_letter_queue=other.name)
        delivery = take(db, queue)
        queue.reject(db, delivery, "no stock")
    else:
        fdbq.ok("message", "move", name, other.name, message_id, "--yes")
    (there,) = other.peek(db)
    shown = fdbq.ok("message", "show", name, message_id, "--json").json
    assert shown["moved_to"] == {"queue": other.name, "id": there.id}
    assert f"{there.id} of queue {other.name}" in fdbq.ok("message", "show", name, message_id).out


def test_dead_letters_are_moved_by_what_they_died_of_or_by_id(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue, target = Queue(name), Queue.create(db, f"{name}-{{parked}}")
    queue.enqueue_many(db, [b"x"] * 4)
    held = queue.receive_many(db, 4)
    for delivery, reason in zip(held, ["declined", "declined", "late", "late"], strict=True):
        queue.reject(db, delivery, reason)
    try:
        by_reason = "message", "move", name, target.name, "--reason", "declined"
        looked = fdbq.ok(*by_reason, "--dry-run", "--json")
        assert (looked.json["queue"], queue.depth(db).dead) == (name, 4)
        done = {"queue": name, "moved": 2, "target": target.name}
        assert fdbq.ok(*by_reason, "--yes", "--json").json == done
        assert fdbq(*by_reason, "--yes").code == 1
        by_id = fdbq.ok("message", "move", name, target.name, held[2].id, "--yes")
        assert "moved 1 message of queue" in by_id.out
        assert [letter.id for letter in queue.dead.list(db)] == [held[3].id]
        assert target.depth(db).ready == 3
        for wrong in (name, f"{name}-nowhere"):
            assert fdbq("message", "move", name, wrong, "--all", "--yes").code != 0
        assert fdbq("message", "move", name, target.name, "--yes").code != 0
        assert queue.depth(db).dead == 1
    finally:
        target.delete(db)


def test_a_dead_letter_that_has_to_stay_is_told_of(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    queue.enqueue(db, b"first", unique="u")
    delivery = take(db, queue)
    queue.reject(db, delivery, "no")
    queue.enqueue(db, b"second", unique="u")

    told = fdbq.ok("message", "retry", name, "--all", "--yes")

    assert "retried 0 messages" in told.out
    assert "1 message not retried: another message holds the unique key" in told.err


def test_what_waits_is_listed_and_edited(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    queue.enqueue_many(db, [NewMessage(b"%d" % n, key="k") for n in range(3)])
    later = queue.enqueue(db, b"later", delay=3600)

    waiting = fdbq.ok("message", "find", name, "--state", "waiting", "--json").json
    (delayed,) = fdbq.ok("message", "find", name, "--state", "scheduled", "--json").json
    edited = fdbq.ok("message", "edit", name, later, "--priority", "9", "--delay", "0s")

    assert [each["payload"] for each in waiting] == ["1", "2"]
    assert all(each["waits_for"].startswith("key ") for each in waiting)
    assert (delayed["id"], "due_at" in delayed) == (later, True)
    assert edited.out == f"edited 1 message of queue {name}\n"
    assert [message.payload for message in queue.peek(db, 9)] == [b"later", b"0"]


def test_lists_show_the_keys_of_messages(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    queue.enqueue_many(db, [NewMessage({"customer": "carl"}, key="carl") for _ in range(3)])
    delivery = take(db, queue)
    queue.reject(db, delivery, "no")
    assert queue.receive(db) is not None

    for state in ([], ["--state", "leased"], ["--state", "waiting"], ["--state", "dead"]):
        header, _, row, *_ = fdbq.ok("message", "find", name, *state).out.splitlines()
        assert " key " in header
        assert " carl " in row
    told = fdbq.refused("message", "find", name, "customer = 'carl'", code=2)
    assert "write payload.customer" in told


def test_a_malformed_payload_is_repaired(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    queue = Queue(name)
    dead, waits = queue.enqueue_many(db, [{"number": "x"}, {"number": "y"}])
    delivery = take(db, queue)
    queue.reject(db, delivery, "malformed")

    edited = fdbq.ok("message", "edit", name, dead, waits, "--payload", '{"number": 17}')

    assert edited.out == f"edited 2 messages of queue {name}\n"
    fdbq.ok("message", "retry", name, dead)
    assert [queue.value(message) for message in queue.peek(db, 9)] == [{"number": 17}] * 2
    told = fdbq.refused("message", "edit", name, "--all", "--payload", "1", code=2)
    assert "--payload is for messages that you name" in told


def test_every_listing_is_an_array_with_an_element_to_a_line_and_csv(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    queue.enqueue(db, b"a,b", headers={"region": "eu"})
    queue.enqueue(db, b"plain")

    array = fdbq.ok("message", "find", name, "--json")
    table = fdbq.ok("message", "find", name, "--csv")
    nothing = fdbq.ok("message", "find", name, "--state", "leased", "--json")

    first, *elements, last = array.out.splitlines()
    assert (first, last, nothing.out) == ("[", "]", "[]\n")
    assert [json.loads(each.removesuffix(",")) for each in elements] == array.json
    rows = [*csv.DictReader(io.StringIO(table.out))]
    assert [(row["payload"], row["header.region"]) for row in rows] == [
        ("a,b", "eu"),
        ("plain", ""),
    ]


def test_a_csv_controls_no_terminal_and_no_spreadsheet(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1"]
    header = '=HYPERLINK("evil")'
    for each in formulas:
        Queue(name).enqueue(
            db, each.encode(), headers={"h": each, "n": -1, header: "\x1b[2J\n\u202e"}
        )
    table = fdbq.ok("message", "find", name, "--csv")
    assert table.out.replace("\n", "").replace("\t", "").isprintable()
    rows = [*csv.DictReader(io.StringIO(table.out))]
    assert [row["header.h"] for row in rows] == [f"'{each}" for each in formulas]
    assert {row["header.n"] for row in rows} == {"-1"}
    assert {row[f"header.{header}"] for row in rows} == {"\\x1b[2J\n\\u202e"}


def test_queues_are_listed_by_prefix_in_natural_order_or_by_depth(
    db: fdb.Database, fdbq: Fdbq, name: str, crowd: list[str]
) -> None:
    Queue(crowd[1]).enqueue_many(db, [b"x"] * 2)
    Queue(crowd[2]).enqueue_many(db, [b"x"] * 3)

    def listed(*options: str) -> list[str]:
        found = fdbq.ok("queue", "list", f"{name}-", *options, "--json").json
        return [each["queue"] for each in found]

    assert listed() == crowd
    assert listed("--sort", "ready", "--non-empty") == [crowd[2], crowd[1]]
    assert listed("--after", crowd[0], "--max", "1") == [crowd[1]]
    assert listed("--after", f"{name}-{'9' * 5_000}") == []


def test_several_queues_are_made_purged_verified_and_deleted_at_once(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    names = [f"{name}-a", f"{name}-b"]

    made = fdbq.ok("queue", "create", *names, "--lease", "1h", "--set", "history_seconds=7d")
    assert made.out == "".join(f"created queue {each}\n" for each in names)
    assert Queue(names[0]).options(db).lease == 3600
    assert Queue(names[1]).options(db).history_seconds == 7 * 86_400
    Queue(names[1]).enqueue(db, b"x")
    assert [
        each["purged"]
        for each in fdbq.ok(
            "message", "purge", names[0], "--queue", names[1], "--all", "--yes", "--json"
        ).json
    ] == [
        0,
        1,
    ]
    assert fdbq.ok("doctor", *names, "--json").json["ok"]
    assert "exists" in fdbq.refused("queue", "create", f"{name}-c", names[0], code=1)
    fdbq.ok("queue", "delete", *names, "--yes")
    assert fdbq.ok("queue", "list", f"{name}-", "--json").json == []


def test_another_root_has_queues_of_its_own(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    root = ("--root", f"app/{name}")
    fdbq.ok(*root, "queue", "create", "orders")
    fdbq.ok(*root, "enqueue", "orders", "x")

    space = fdb.Subspace(("app", name))
    assert Queue("orders", space).depth(db).ready == 1
    assert [each["queue"] for each in fdbq.ok(*root, "queue", "list", "--json").json] == ["orders"]
    assert "no queue" in fdbq.refused("message", "find", "orders", code=1)
    fdbq.ok(*root, "queue", "delete", "orders", "--yes")


@pytest.mark.parametrize("kind", ["subscription", "writer", "worker", "reader"])
def test_who_reads_and_writes_a_queue_is_listed_page_by_page(
    db: fdb.Database, fdbq: Fdbq, name: str, kind: str
) -> None:
    queue = Queue(name)
    for each in ("a", "b", "c"):
        match kind:
            case "subscription":
                queue.subscriptions.open(db, each)
            case "writer":
                stager = queue.streams.sink(each).stage(db, 0)
                stager.plain(b"x", 4)
                queue.streams.sink(each).publish(db, 0, [stager.finish()], progress=Steps(1))
            case "worker":
                register(db, queue, each)
            case "reader":
                queue.enqueue(db, b"x")
                planner = queue.streams.plans.planner(each)
                planner.next(db, planner.begin(db), messages=1)
    kind = "stream" if kind in ("reader", "writer") else kind
    key = {"worker": "id"}.get(kind, kind)
    every = [each[key] for each in fdbq.ok(kind, "list", name, "--json").json]

    first = fdbq.ok(kind, "list", name, "--max", "2", "--json")
    rest = fdbq.ok(kind, "list", name, "--after", every[1], "--max", "1", "--json")

    assert len(every) == 3
    assert [each[key] for each in first.json] == every[:2]
    assert "of 3: there are more" in first.err
    assert f"--after {every[1]}" in first.err
    assert [each[key] for each in rest.json] == every[2:]
    assert rest.err == ""
    assert "no such" in fdbq.refused(kind, "list", name, "--after", "nobody", code=1)


def test_a_listing_is_as_long_as_it_is_asked_to_be(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    # Given more schedules than one call of the package lists
    names = [f"s{n:04}" for n in range(1_001)]

    @transactional
    def make(tr: fdb.Transaction, some: list[str]) -> None:
        for each in some:
            Queue(name).schedules.set(tr, each, b"x", every=3600)

    for start in range(0, len(names), 100):
        make(db, names[start : start + 100])

    # Then all are listed, or as many as are wanted, with a note
    found = fdbq.ok("schedule", "list", name, "--max", "1001", "--json")
    assert [each["schedule"] for each in found.json] == names
    assert found.err == ""
    assert "there are more" in fdbq.ok("schedule", "list", name, "--max", "1000").err
    for kind in (("limit", "list"), ("limit", "list", "--queue", name), ("group", "list", name)):
        assert fdbq.ok(*kind, "--max", "10000", "--json").json == []


def test_one_selection_serves_all_that_changes_messages(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    # Given messages in two states, of which two match
    queue, target = Queue(name), Queue.create(db, f"{name}-target")
    for headers in ({"region": "eu"}, {"region": "us"}):
        queue.enqueue_many(db, [NewMessage(b"x", headers=headers, delay=n * 60) for n in (0, 1)])
    chosen = ("--match", "region = 'eu'", "--state", "ready", "--state", "scheduled", "--json")
    try:
        looked = fdbq.ok("message", "purge", name, *chosen, "--dry-run").json
        assert looked["would_be_purged"] == 2

        # When they are edited, each is edited once, though one comes to the other state
        assert fdbq.ok("message", "edit", name, *chosen, "--delay", "1h", "--yes").json == {
            "queue": name,
            "edited": 2,
        }
        assert (queue.depth(db).ready, queue.depth(db).scheduled) == (1, 3)

        # And they are copied, moved and cancelled as well
        there = ("--queue", target.name, "--yes")
        assert fdbq.ok("message", "copy", name, target.name, *chosen, "--yes").json["copied"] == 2
        assert fdbq.ok("message", "move", name, target.name, *chosen, "--yes").json["moved"] == 2
        none, all_ = fdbq.ok("message", "cancel", name, *chosen, *there).json
        assert (none["cancelled"], all_["cancelled"]) == (0, 4)
        assert (queue.depth(db).ready, target.depth(db).purged) == (1, 4)
    finally:
        target.delete(db)


def test_what_is_misspelt_is_answered_with_the_nearest_name(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    queue.subscriptions.open(db, "europe")
    queue.schedules.set(db, "nightly", b"x", every=3600)

    for words, near in (
        (("message", "find", name[:-1]), name),
        (("subscription", "seek", name, "eurpe", "first"), "europe"),
        (("schedule", "show", name, "nihtly"), "nightly"),
    ):
        assert fdbq.refused(*words, code=1).endswith(f": did you mean {near!r}?")
