"""``fdbq`` from end to end: what it does, and what it prints."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq
from tests.patience import DEADLINE

HOSTILE = [
    b"\x1b]0;owned\x07\x1b[31mred\x1b[0m",
    b"[bold red]markup[/bold red] [/]",
    b"two\nlines\r\tand a tab",
    b"\xff\xfe not UTF-8 \x80",
    "\u202eright to left\u202c \u200b \x9b31m \x7f".encode(),
    b"<script>alert(1)</script>",
    b"",
]


@pytest.mark.usefixtures("db")
def test_status_tells_which_store_answers(fdbq: Fdbq, store: str, embedded: bool) -> None:
    status = fdbq.ok("status", "--json").json

    assert status["store"] == store
    assert status["engine"] == ("embedded" if embedded else "foundationdb")
    assert status["reachable"] is True
    assert status["api_version"] == 730
    assert set(status["latency"]) == {"begin_ms", "read_ms", "commit_ms"}
    assert store in fdbq.ok("status").out


def test_the_store_option_wins_over_the_environment(
    fdbq: Fdbq, tmp_path: Path, embedded: bool
) -> None:
    if not embedded:
        pytest.skip("a second store needs the embedded engine")
    other = tmp_path / "other.fdbq"

    first = fdbq.ok("--store", str(other), "queue", "create", "orders")
    again = fdbq.ok("--store", str(other), "status", "--json")

    assert again.json["store"] == str(other)
    assert first.err == f"created a new store: {other}\n"
    assert again.err == ""


def test_a_queue_is_sorted_by_a_header_or_keeps_last_values(fdbq: Fdbq, name: str) -> None:
    by_due, newest = f"{name}-by-due", f"{name}-newest"
    created = fdbq.ok("queue", "create", by_due, "--sort", "due", "--json").json
    assert created["options"]["sort"] == "due"
    created = fdbq.ok("queue", "create", newest, "--last-value", "due", "--json").json
    assert created["options"]["last_value"] == "due"
    for queue in (by_due, newest):
        for n, due in enumerate(("b", "a", "b")):
            fdbq.ok("enqueue", queue, f"{due}{n}", "--header", f"due={due}")
        fdbq.ok("doctor", queue)
    shown = [row["payload"] for row in fdbq.ok("message", "find", by_due, "--json").json]
    assert shown == ["a1", "b0", "b2"]
    shown = [row["payload"] for row in fdbq.ok("message", "find", newest, "--json").json]
    assert shown == ["a1", "b2"]
    told = fdbq.refused("queue", "set", by_due, "sort=none", code=1)
    assert "cannot become None" in told


def test_a_queue_is_created_listed_shown_and_deleted(fdbq: Fdbq, name: str) -> None:
    other = f"{name}-2"
    created = fdbq.ok(
        "queue", "create", other, "--levels", "3", "--max-attempts", "0", "--lease", "5", "--json"
    ).json
    assert created["queue"] == other
    expected = {"levels": 3, "max_attempts": None, "lease": 5.0}
    assert created["options"].items() >= expected.items()

    listed = {row["queue"]: row for row in fdbq.ok("queue", "list", "--json").json}
    assert listed.keys() >= {name, other}
    assert set(listed[other].values()) == {other, 0, None}
    assert other in fdbq.ok("queue", "list").out

    fdbq.ok("enqueue", other, "urgent", "--priority", "9")
    shown = fdbq.ok("queue", "show", other, "--json").json
    assert shown["depth"]["ready"] == 1
    assert shown["levels"]["0"]["ready_bytes"] == len('"urgent"')
    assert "ready" in fdbq.ok("queue", "show", other).out

    fdbq.ok("queue", "set", other, "max_in_flight=5", "rate=1/day")
    assert re.search(
        r"in flight +0 of 5\n.*next by its rate +now", fdbq.ok("queue", "show", other).out
    )
    fdbq.ok("receive", other)
    assert re.search(
        r"in flight +1 of 5\n.*next by its rate +in 8.* s", fdbq.ok("queue", "show", other).out
    )
    assert fdbq.ok("queue", "show", other, "--json").json["next_seconds"] > 86_000

    assert fdbq.ok("queue", "delete", other, "--yes", "--json").json == {
        "queue": other,
        "deleted": True,
    }
    assert other not in fdbq.ok("queue", "list").out


def test_a_message_is_enqueued_peeked_received_and_acknowledged(fdbq: Fdbq, name: str) -> None:
    later = fdbq.ok("enqueue", name, "later", "--priority", "1").out.strip()
    sooner = fdbq.ok(
        "enqueue", name, "sooner", "--priority", "8", "--header", "region=eu", "--json"
    ).json
    assert sooner == {"queue": name, "enqueued": 1, "id": sooner["id"]}

    peeked = fdbq.ok("message", "find", name, "--json").lines
    assert [message["id"] for message in peeked] == [sooner["id"], later]
    assert peeked[0] == {
        "id": sooner["id"],
        "payload": "sooner",
        "priority": 8,
        "headers": {"region": "eu"},
        "level": 1,
        "attempts": 0,
        "enqueued_at": peeked[0]["enqueued_at"],
        "state": "ready",
    }

    (received,) = fdbq.ok("receive", name, "--lease", "60", "--json").lines
    assert received.items() >= {"id": sooner["id"], "attempt": 1}.items()
    assert received["token"]
    assert "later" in fdbq.ok("receive", name, "--max", "5", "--ack").out
    assert "empty" in fdbq.ok("receive", name).err

    depth = fdbq.ok("queue", "show", name, "--json").json["depth"]
    assert (depth["enqueued"], depth["leased"], depth["done"]) == (2, 1, 1)


def test_receive_waits_for_a_message(fdbq: Fdbq, name: str) -> None:
    with subprocess.Popen(
        [FDBQ, "receive", name, "--wait", "60", "--json"],
        stdout=subprocess.PIPE,
        env=fdbq.environment,
    ) as waiting:
        fdbq.ok("enqueue", name, "at last")
        assert waiting.stdout is not None
        assert json.loads(waiting.stdout.readline())["payload"] == "at last"
        assert waiting.wait(DEADLINE) == 0


def test_a_file_is_a_payload_as_it_is(fdbq: Fdbq, name: str, tmp_path: Path) -> None:
    payload = bytes(range(256))
    file = tmp_path / "payload"
    file.write_bytes(payload)

    fdbq.ok("enqueue", name, "--file", str(file))

    (message,) = fdbq.ok("message", "find", name, "--json").lines
    assert base64.b64decode(message["payload_base64"]) == payload


def test_json_lines_are_enqueued_in_their_order(fdbq: Fdbq, name: str) -> None:
    lines = [json.dumps({"payload": f"message {n}"}) for n in range(3000)]

    done = fdbq.ok("enqueue", name, "--json", given="\n".join(lines))

    assert done.json == {"queue": name, "enqueued": 3000}
    peeked = fdbq.ok("message", "find", name, "--max", "10000", "--json").lines
    assert [message["payload"] for message in peeked] == [f"message {n}" for n in range(3000)]


def test_json_lines_name_priority_and_headers(fdbq: Fdbq, name: str) -> None:
    given = [
        {"payload": "a", "priority": 9, "headers": {"n": 1, "ok": True, "none": None}},
        {"payload_base64": base64.b64encode(b"\xff").decode(), "priority": 8},
        {"payload": "c"},
    ]

    fdbq.ok(
        *("enqueue", name, "--priority", "2", "--header", "k=v"),
        given="\n\n".join(map(json.dumps, given)) + "\n",
    )

    found = fdbq.ok("message", "find", name, "--json").lines
    assert [(m["priority"], m["headers"]) for m in found] == [
        (9, {"n": 1, "ok": True, "none": None}),
        (8, {"k": "v"}),
        (2, {"k": "v"}),
    ]


def test_how_many_were_new_is_told(fdbq: Fdbq, name: str) -> None:
    three = '{"payload": "x", "dedup_id": "a"}\n' * 3

    many = fdbq.ok("enqueue", name, "--json", given=three)
    one = fdbq.ok("enqueue", name, "x", "--dedup-id", "a", "--json")

    assert many.json == {"queue": name, "enqueued": 1, "known": 2}
    assert "enqueued 1 message " in many.err
    assert "2 existed already" in many.err
    assert (one.json["enqueued"], one.json["known"]) == (0, 1)


def test_what_receive_prints_can_be_enqueued_again(fdbq: Fdbq, name: str) -> None:
    payloads = ["text", "\u2028 \x1b", ""]
    for payload in payloads:
        fdbq.ok("enqueue", name, given=json.dumps({"payload": payload, "headers": {"a": "b"}}))
    printed = fdbq.ok("receive", name, "--max", "10", "--ack", "--json").out

    fdbq.ok("enqueue", name, given=printed)

    found = fdbq.ok("message", "find", name, "--json").lines
    assert [(m["payload"], m["headers"]) for m in found] == [(p, {"a": "b"}) for p in payloads]


def test_a_message_that_is_handled_is_cancelled(fdbq: Fdbq, db: fdb.Database, name: str) -> None:
    queue = Queue(name)
    running = fdbq.ok("enqueue", name, "running").out.strip()
    delivery = queue.receive(db)
    waiting = fdbq.ok("enqueue", name, "waiting").out.strip()
    assert delivery is not None
    both = (name, running, waiting, "--json")
    assert fdbq.ok("message", "cancel", *both, "--dry-run").json == {
        "queue": name, "cancelled": 0, "would_be_cancelled": 2, "missed": []
    }  # fmt: skip
    assert fdbq.ok("message", "cancel", *both, "--yes").json == {
        "queue": name, "cancelled": 2, "missed": [], "running": [running]
    }  # fmt: skip
    assert fdbq.ok("message", "show", name, running, "--json").json["cancelled"] is True
    queue.release(db, delivery)
    assert fdbq("message", "cancel", name, running, "--yes").code == 1
    assert queue.depth(db).purged == 2


def test_a_message_is_replaced_or_put_off(fdbq: Fdbq, db: fdb.Database, name: str) -> None:
    unique = (name, "--unique", "u", "--on-conflict")
    first = fdbq.ok("enqueue", *unique, "replace", "old").out
    again = fdbq.ok("enqueue", *unique, "replace", "new")
    assert (again.out, "may have been changed" in again.err) == (first, True)
    line = {"payload": "newer", "unique": "u", "on_conflict": "replace"}
    fdbq.ok("enqueue", name, given=json.dumps(line))
    assert [each.payload for each in Queue(name).peek(db)] == [b'"newer"']
    fdbq.ok("enqueue", *unique, "debounce", "--delay", "1h", "--max-delay", "1d", "late")
    rows = "payload,unique,on_conflict,delay,max_delay\nlater,u,debounce,7200,86400\n"
    fdbq.ok("enqueue", name, "--csv", given=rows)
    assert Queue(name).depth(db).scheduled == 1
    state = Queue(name).get(db, first.strip())
    assert state is not None
    assert state.message.payload == b'"later"'
    assert fdbq("enqueue", name, "x", "--on-conflict", "replace").code == 2


@pytest.mark.parametrize("command", ["message find", "receive"])
def test_hostile_payloads_are_shown_harmlessly(
    db: fdb.Database, fdbq: Fdbq, name: str, command: str
) -> None:
    messages = [NewMessage(payload, headers={"evil": "\x1b[2J[red]"}) for payload in HOSTILE]
    Queue(name).enqueue_many(db, messages)

    for form in ([], ["--json"]):
        shown = fdbq.ok(*command.split(), name, "--max", str(len(HOSTILE)), *form)
        text = shown.out + shown.err
        assert all(c.isprintable() or c == "\n" for c in text)
        Queue(name).enqueue_many(db, messages)

    assert "[bold red]markup[/bold red] [/]" in text


def test_a_hostile_payload_does_not_reach_a_terminal(fdbq: Fdbq, name: str) -> None:
    line = {"payload": HOSTILE[0].decode() + "\x1b[2J" + "x" * 80, "content_type": "text/plain"}
    fdbq.ok("enqueue", name, given=json.dumps(line))
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        subprocess.run(
            [FDBQ, "message", "find", name],
            stdout=theirs,
            env={**fdbq.environment, "TERM": "xterm", "COLUMNS": "80"},
            timeout=DEADLINE,
            check=True,
        )
        os.close(theirs)
        shown = b""
        try:
            while chunk := terminal.read(4096):
                shown += chunk
        except OSError:  # how a pseudo-terminal says that its other side was closed
            pass
    assert b"\\x1b]0;" in shown
    assert b"\x1b]0;" not in shown
    assert b"\x1b[2J" not in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert max(map(len, plain.splitlines())) == 80


def test_the_shell_completes_names_of_queues_that_are_harmless_to_it(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    hostile = Queue.create(db, f"{name}$(reboot)")
    environment = {
        **fdbq.environment,
        "_FDBQ_COMPLETE": "complete_bash",
        "COMP_WORDS": "fdbq message find orders-",
        "COMP_CWORD": "3",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }

    done = subprocess.run([FDBQ], check=False, capture_output=True, env=environment, text=True)

    hostile.delete(db)
    assert name in done.stdout.split("\n")
    assert "reboot" not in done.stdout


@dataclass
class Order:
    number: int


@pytest.mark.sample(3)
@pytest.mark.parametrize("serializer", [None, Order])
@pytest.mark.parametrize(
    ("text", "value"),
    [('{"number": 17}', {"number": 17}), ("order 17", "order 17"), ("17", 17), ("NaN", "NaN")],
)
def test_a_payload_in_a_shell_is_what_it_is_in_python(
    fdbq: Fdbq, db: fdb.Database, name: str, serializer: Any, text: str, value: Any
) -> None:
    queue = Queue.open(db, name, serializer=serializer)
    Queue.open(db, name).enqueue(db, value)
    fdbq.ok("enqueue", name, text)
    fdbq.ok("enqueue", name, given=json.dumps({"payload": value}))
    fdbq.ok("schedule", "set", name, "often", text, "--every", "1d")
    fdbq.ok("schedule", "run", name, "often")
    kinds = {(each.payload, each.content_type) for each in queue.peek(db, 9)}
    assert kinds == {(json.dumps(value, separators=(",", ":")).encode(), "application/json")}
    assert fdbq.ok("receive", name, "--json").json["payload"] == value


def test_a_payload_in_a_shell_has_the_content_type_of_the_queue(
    fdbq: Fdbq, db: fdb.Database, name: str
) -> None:
    scans = Queue.open(db, name, serializer=bytes)
    fdbq.ok("enqueue", name, '{"number": 17}')
    fdbq.refused("enqueue", name, given='{"payload": {"number": 17}}', code=2)
    assert [scans.value(each) for each in scans.peek(db, 9)] == [b'{"number": 17}']


def test_bytes_do_not_go_to_a_queue_of_json(
    fdbq: Fdbq, db: fdb.Database, name: str, tmp_path: Path
) -> None:
    orders = Queue.open(db, name, serializer=Order)
    (tmp_path / "scan").write_bytes(b"\xff")
    fdbq.refused("enqueue", name, "--file", str(tmp_path / "scan"), code=2)
    fdbq.refused("enqueue", name, given='{"payload_base64": "/w=="}', code=2)
    assert orders.depth(db).enqueued == 0
