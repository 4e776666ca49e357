"""What ``fdbq`` refuses: one line, the right exit code, and nothing half written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq
from tests.patience import DEADLINE

USAGE = 2
FAILURE = 1


def enqueued(db: fdb.Database, name: str) -> int:
    return Queue(name).depth(db).enqueued


@pytest.mark.parametrize(
    "arguments",
    [
        ("enqueue", "nowhere", "payload"),
        ("message", "purge", "nowhere", "--all", "--yes"),
        ("queue", "set", "nowhere", "lease=5"),
        ("message", "move", "nowhere", "QUEUE", "--all", "--yes"),
        ("message", "show", "nowhere", "05-000000000001-83ca4e58174f03bb"),
        ("stream", "finish", "nowhere", "stream", "--yes"),
        ("limit", "list", "--queue", "nowhere"),
        ("doctor", "nowhere"),
    ],
)
def test_an_unknown_queue_is_named(fdbq: Fdbq, name: str, arguments: tuple[str, ...]) -> None:
    told = fdbq.refused(*(name if a == "QUEUE" else a for a in arguments), code=FAILURE)
    assert "no queue 'nowhere'" in told


def test_an_existing_queue_is_not_created_again(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    assert "already exists" in fdbq.refused("queue", "create", name, code=FAILURE)


@pytest.mark.sample(15)
@pytest.mark.parametrize(
    "arguments",
    [
        ("enqueue", "QUEUE", "payload", "--priority", "10"),
        ("enqueue", "QUEUE", "payload", "--header", "novalue"),
        ("enqueue", "QUEUE", "payload", "--file", "/dev/null"),
        ("enqueue", "QUEUE", "--file", "/nonexistent/file"),
        ("enqueue", "QUEUE", "--file", "/dev/zero"),
        ("receive", "QUEUE", "--lease", "0"),
        ("enqueue", "QUEUE", "payload", "--delay", "1x"),
        ("message", "find", "QUEUE", "--csv", "--json"),
        ("queue", "create", "line\nend"),
        ("message", "purge", "QUEUE", "--yes"),
        ("queue", "create", "new", "--set", "colour=red"),
        ("queue", "set", "QUEUE", "backoff={}"),
        ("message", "purge", "QUEUE", "--match", "region =", "--yes"),
        ("message", "move", "QUEUE", "QUEUE", "--all", "--yes"),
        ("enqueue", "QUEUE", "payload", "--at", "tomorrow"),
        ("enqueue", "QUEUE", "payload", "--resume", "state"),
        ("message", "release", "QUEUE", "no token"),
        ("message", "retry", "QUEUE", "--all", "--state", "ready", "--yes"),
        ("message", "find", "QUEUE", "--consumer", "billing", "--state", "dead"),
        ("message", "find", "QUEUE", "regoin = 'eu'"),
        ("queue", "list", "--sort", "ready", "--after", "QUEUE"),
        ("subscription", "create", "QUEUE", "eu", "--start", "now"),
        ("queue", "history", "QUEUE", "--after", "xyz"),
        ("limit", "set", "api=stripe", "--window", "1"),
        ("worker", "app:worker", "--health", "localhost:65535", "--processes", "2"),
        ("nonsense",),
        ("--store", "", "status"),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    db: fdb.Database, fdbq: Fdbq, name: str, arguments: tuple[str, ...]
) -> None:
    fdbq.refused(*(name if a == "QUEUE" else a for a in arguments), code=USAGE)

    assert enqueued(db, name) == 0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "either payload or payload_base64"),
        ('{"payload": "a", "payload_base64": "YQ=="}', "either payload or payload_base64"),
        ('{"payload": 1, "content_type": "text/plain"}', "must be a string"),
        ('{"payload": NaN}', "the float nan, which JSON does not have"),
        ('{"payload_base64": "?"}', "not base64"),
        ('{"payload": "\\ud800"}', "surrogate"),
        ('{"payload": "a", "priorty": 1}', "unknown name 'priorty'"),
        ('{"payload": "a", "priority": 10}', "must be an integer from 0 to 9"),
        ('{"payload": "a", "headers": {"b": []}}', "a value must be"),
        (json.dumps({"payload": "a" * 8_100_000}), "at most 8,000,000"),
        ('{"payload": ' * 100_000, "line 3"),
        (b"\xff", "not UTF-8"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_broken_line_is_named_and_its_batch_is_not_written(
    db: fdb.Database, fdbq: Fdbq, name: str, line: str | bytes, problem: str
) -> None:
    broken = line if isinstance(line, bytes) else line.encode()
    given = b'{"payload": "good"}\n\n' + broken + b'\n{"payload": "good"}\n'

    refusal = fdbq.refused("enqueue", name, given=given, code=USAGE)

    assert refusal.startswith("line 3: ")
    assert problem in refusal
    if len(given) < 4096:  # one read has it all, so it is one batch
        assert refusal.endswith("nothing was enqueued")
        assert enqueued(db, name) == 0


def test_a_broken_line_late_says_how_many_were_enqueued(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    given = '{"payload": "good"}\n' * 50_000 + "broken\n"

    refusal = fdbq.refused("enqueue", name, given=given, code=USAGE)

    assert refusal.startswith("line 50,001: not JSON")
    assert f"{enqueued(db, name):,} messages before it were enqueued" in refusal


@pytest.mark.parametrize("given", ["", "\n\n  \n"])
def test_no_messages_at_all_are_nothing_to_do(fdbq: Fdbq, name: str, given: str) -> None:
    done = fdbq.ok("enqueue", name, given=given)

    assert "no messages" in done.err


def test_a_store_that_cannot_be_written_is_named(fdbq: Fdbq) -> None:
    for command in (["status"], ["queue", "list"], ["enqueue", "orders", "payload"]):
        refusal = fdbq.refused("--store", "/proc/nowhere/store.fdbq", *command, code=FAILURE)
        assert "/proc/nowhere/store.fdbq" in refusal


def test_a_file_that_is_no_store_is_left_alone(fdbq: Fdbq, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam\n")

    refusal = fdbq.refused("--store", str(file), "queue", "create", "orders", code=FAILURE)

    assert "is not a store" in refusal
    assert file.read_text() == "Dear Sir or Madam\n"


def test_a_damaged_store_is_told_in_one_line(fdbq: Fdbq, tmp_path: Path, embedded: bool) -> None:
    if not embedded:
        pytest.skip("a file of the embedded engine")
    file = tmp_path / "damaged.fdbq"
    file.write_bytes(b"SQLite format 3\0" + b"\xee" * 8000)

    assert str(file) in fdbq.refused("--store", str(file), "status", code=FAILURE)


def test_a_full_disk_is_told_in_one_line_and_nothing_is_half_there(
    db: fdb.Database, fdbq: Fdbq, name: str, embedded: bool
) -> None:
    if not embedded:
        pytest.skip("a file of the embedded engine")
    Queue(name).enqueue(db, b"x" * 50_000)
    program = (
        "import os, resource as r, sys; r.setrlimit(r.RLIMIT_FSIZE, (40_000, r.RLIM_INFINITY)); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    limited = [sys.executable, "-c", program, str(FDBQ), "enqueue", name, "y" * 50_000]

    done = subprocess.run(limited, env=fdbq.environment, capture_output=True, check=False)

    assert done.returncode == FAILURE
    assert done.stderr.startswith(b"fdbq: there is no room left for the embedded store")
    assert done.stderr.count(b"\n") == 1
    assert [message.payload[:1] for message in Queue(name).peek(db, 2)] == [b"x"]
    assert Queue(name).admin.verify(db).ok


def test_help_works_where_the_store_does_not(fdbq: Fdbq) -> None:
    broken = Fdbq({**fdbq.environment, "FDBQUEUE_STORE": "/proc/nowhere/store.fdbq"})

    assert "enqueue" in broken.ok("--help").out
    assert "QUEUE" in broken.ok("receive", "--help").out
    broken.refused("status", code=FAILURE)


def test_an_interrupt_ends_without_a_traceback(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    with subprocess.Popen(
        [FDBQ, "enqueue", name],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
        text=True,
    ) as process:
        # Given a command that has enqueued something and waits for more
        assert process.stdin is not None
        process.stdin.write('{"payload": "first"}\n')
        process.stdin.flush()
        while not enqueued(db, name):
            assert process.poll() is None

        # When it is interrupted
        process.send_signal(signal.SIGINT)

        # Then it says what it did
        _, told = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert re.fullmatch(r"fdbq: interrupted; at least [01] messages? enqueued\n", told)


def test_a_reader_that_goes_away_is_no_error_to_talk_about(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    fdbq.ok("enqueue", name, given='{"payload": "x"}\n' * 3000)
    with subprocess.Popen(
        [FDBQ, "message", "find", name, "--max", "3000", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1
