"""How commands end when descriptors are closed, readers go away, and signals come."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue import Queue, fdb
from fdbqueue.errors import NotAStore, StoreNotFound
from tests.acceptance.running import FDBQ, Fdbq
from tests.acceptance.screen import Screen
from tests.patience import DEADLINE

LEAVES = b"\x1b[?1049l"
ENTERS = b"\x1b[?1049h"


def shell(fdbq: Fdbq, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line, str(FDBQ)],
        env=fdbq.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&- <&-"])
def test_closed_descriptors_are_no_error(
    db: fdb.Database, fdbq: Fdbq, name: str, closed: str
) -> None:
    done = shell(fdbq, f"$0 enqueue {name} x {closed}")

    assert (done.returncode, done.stderr) == (0, "")
    assert Queue(name).depth(db).ready == 1


def test_nothing_is_acknowledged_that_cannot_be_printed(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    Queue(name).enqueue(db, b"x")

    done = shell(fdbq, f"$0 receive {name} --ack >&-")

    assert (done.returncode, "output is closed" in done.stderr) == (2, True)
    assert Queue(name).depth(db).ready == 1


def test_what_a_reader_that_goes_away_has_not_seen_is_released_as_it_was(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    for _ in range(3):
        queue.enqueue_many(db, [b"x" * 400] * 1_000)

    shell(fdbq, f"$0 receive {name} --max 3000 --ack --json | head -1")

    depth = queue.depth(db)
    assert (depth.leased, depth.dead) == (0, 0)
    assert depth.ready + depth.done == 3_000
    assert depth.ready > 0
    assert all(message.attempts == 0 for message in queue.peek(db, 1_000))


def test_an_empty_pipe_is_nothing_to_do(fdbq: Fdbq, name: str) -> None:
    done = shell(fdbq, f"set -o pipefail; $0 receive {name} --json | $0 enqueue {name} --json")

    assert done.returncode == 0, done.stderr
    assert ": 0" in done.stdout


@pytest.mark.parametrize("command", [["top"], ["queue", "list", "--watch", "60"]])
def test_a_terminal_is_given_back_to_who_ends_or_stops_it(
    fdbq: Fdbq, name: str, command: list[str]
) -> None:
    with Screen([str(FDBQ), *command], fdbq.environment) as screen:
        screen.shows(name[:8])
        # Stopped, and gone on with
        screen.process.send_signal(signal.SIGTSTP)
        screen.receives(LEAVES)
        screen.process.send_signal(signal.SIGCONT)
        screen.receives(ENTERS)
        screen.shows(name[:8])
        # Ended
        screen.process.send_signal(signal.SIGTERM)
        assert screen.ended() == 128 + signal.SIGTERM
    assert screen.received.endswith(LEAVES)


def test_no_command_but_one_makes_a_store(fdbq: Fdbq, tmp_path: Path, embedded: bool) -> None:
    if not embedded:
        pytest.skip("a file of the embedded engine")
    path = tmp_path / "shop" / "store.fdbq"
    at_path = Fdbq({**fdbq.environment, "FDBQUEUE_STORE": str(path)})
    (tmp_path / "app.py").write_text("import fdbqueue\nfdbqueue.open()\n")
    program = Fdbq({**at_path.environment, "PYTHONPATH": str(tmp_path)})
    for refusal in (
        at_path.refused("doctor", code=1),
        at_path.refused("message", "find", "orders", code=1),
        at_path.refused("enqueue", "orders", "x", code=1),
        program.refused("worker", "app:worker", code=2),
    ):
        assert "create a store with fdbq queue create" in refusal
    create = ("queue", "create", "orders")
    assert "only in a folder that exists" in at_path.refused(*create, code=1)
    assert not path.parent.exists()
    # And what is near is named
    path.parent.mkdir()
    assert fdbq.ok("--store", str(path), *create).err == f"created a new store: {path}\n"
    for wrong in (path.parent / "stoer.fdbq", tmp_path / "shpo" / "store.fdbq"):
        near = path if wrong.parent == path.parent else path.parent
        elsewhere = Fdbq({**fdbq.environment, "FDBQUEUE_STORE": str(wrong)})
        told = elsewhere.refused("status", code=1)
        assert f"(did you mean {near}?)" in told
    again = fdbq.ok("--store", f"{path}2", *create)
    assert again.err == f"created a new store: {path}2 (did you mean {path}?)\n"


def test_a_store_that_is_not_to_be_made_must_be_there(tmp_path: Path, embedded: bool) -> None:
    if not embedded:
        pytest.skip("a file of the embedded engine")
    empty = tmp_path / "empty.fdbq"
    empty.touch()
    with pytest.raises(StoreNotFound):
        fdbqueue.open(tmp_path / "no" / "store.fdbq", create=False)
    with pytest.raises(NotAStore, match="empty"):
        fdbqueue.open(empty, create=False)
    for url in (f"file://{tmp_path}/store", f"embedded:file://{tmp_path}/store"):
        with pytest.raises(NotAStore, match="without file://"):
            fdbqueue.open(url)
    assert [*tmp_path.iterdir()] == [empty]
