"""``fdbq stream load`` and ``drain``, and ``fdbq message retry --where``."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.cli.main import run
from tests.taking import take

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def here() -> fdb.Database:
    """The store that ``fdbq`` uses by itself."""
    return fdbqueue.open()


@pytest.fixture
def name(here: fdb.Database) -> Iterator[str]:
    name = f"pipeline-{uuid.uuid4().hex}"
    queue = Queue.create(here, name)
    yield name
    queue.delete(here)


@pytest.fixture
def flights(tmp_path: Path) -> str:
    path = tmp_path / "flights.csv"
    path.write_text("carrier,delay\n" + "".join(f"C{n},{n}\n" for n in range(10)))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_files_go_in_and_out(
    here: fdb.Database,
    name: str,
    flights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ["stream", "load", name, flights, "--priority", "delay", "--header", "c=carrier"]
    assert run([*load, "--id", "once", "--json"]) == 0
    done = printed(capsys)
    assert (done["rows"], done["enqueued"], done["rejected"]) == (10, 10, 0)
    assert run([*load, "--id", "once"]) == 0
    assert "was complete already" in capsys.readouterr().out
    assert run([*load, "--bad-rows", "skip", "--priority", "delay + 1"]) == 0
    ended = capsys.readouterr()
    assert ended.out.startswith("loaded 9 rows of 0.0 MB in ")
    assert ended.out.endswith("; 1 row skipped\n")
    assert "skipped: row 10 of partition 0: priority=10" in ended.err

    out = str(tmp_path / "out")
    drain = ["stream", "drain", name, out, "--payload", "json", "--schema", "delay INT"]
    assert run([*drain, "--columns", "id,payload", "--json"]) == 0
    assert printed(capsys)["messages"] == 19
    assert run(drain) == 0
    assert capsys.readouterr().out.startswith("drained 0 messages in ")
    assert Queue(name).depth(here).done == 19


def test_dead_letters_are_replayed(
    here: fdb.Database, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = Queue(name)
    for n in range(3):
        queue.enqueue(here, b"%d" % n)
        delivery = take(here, queue)
        queue.reject(here, delivery, reason="late")

    replay = ["message", "retry", name, "--where", "payload > '0'"]
    assert run([*replay, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would retry 2 messages of queue {name}\n"
    assert run(replay) == 2
    assert "Re-run with --yes to confirm" in capsys.readouterr().err
    assert run([*replay, "--yes", "--json"]) == 0
    assert printed(capsys)["retried"] == 2
    assert queue.depth(here).ready == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["stream", "load", "QUEUE", "a.txt"], 2, "name one of parquet"),
        (["stream", "load", "QUEUE", "nowhere.json"], 2, "there is no such file"),
        (["stream", "load", "QUEUE", "a.json", "--header", "x"], 2, "--header x: write NAME=SQL"),
        (["stream", "load", "no-such-queue", "a.json"], 1, "there is no queue"),
        (["stream", "drain", "no-such-queue", "out"], 1, "there is no queue"),
        (["stream", "drain", "QUEUE", "out", "--payload", "json"], 2, "payloadSchema"),
        (["message", "retry", "QUEUE", "--where", "raison = 1", "--yes"], 2, "raison"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    name: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    words = [name if word == "QUEUE" else word for word in arguments]
    assert run(words) == code
    ended = capsys.readouterr()
    assert ended.out == ""
    assert said in ended.err.splitlines()[-1]
