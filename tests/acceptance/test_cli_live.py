"""What goes on until it is stopped: ``top`` in a pseudo-terminal, ``--watch``, follow, metrics."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq
from tests.acceptance.screen import CLEAR, Screen
from tests.patience import DEADLINE
from tests.taking import take


@pytest.fixture
def second(db: fdb.Database, name: str) -> Iterator[str]:
    """Another queue, that sorts before the first."""
    other = f"a{name[1:]}"
    Queue.create(db, other)
    yield other
    Queue(other).delete(db)


def names(lines: Sequence[str], *known: str) -> list[str]:
    """The queues in the order in which a screen shows them; names are cut there."""
    shown = [line.split("…")[0].split(" ")[0] for line in lines[4:]]
    return [name for text in shown for name in known if text and name.startswith(text)]


def test_top_follows_the_queues_and_the_terminal(
    db: fdb.Database, fdbq: Fdbq, name: str, second: str
) -> None:
    if not fdbq.environment["FDBQUEUE_STORE"].endswith(".fdbq"):
        pytest.skip("it shows all queues of a store: it needs one of its own")
    Queue(name).enqueue_many(db, [b"x"] * 12)
    Queue(second).enqueue_many(db, [b"x"] * 3)
    with Screen([str(FDBQ), "top", "--interval", "0.2"], fdbq.environment) as screen:
        # The queue with the most ready messages comes first
        lines = screen.until(lambda lines: len(lines) > 5 and "2 queues" in lines[1])
        assert max(map(len, lines)) <= 80
        assert "ready 15" in lines[1]
        assert names(lines, name, second) == [name, second]

        # And what happens is seen
        Queue(second).enqueue_many(db, [b"x"] * 5_000)
        lines = screen.until(
            lambda lines: len(lines) > 5 and names(lines, name, second) == [second, name]
        )
        assert "5,003" in lines[4]
        Queue(second).admin.pause(db)
        Queue(name).delete(db)
        screen.shows("1 queue ")

        # And it follows the size of the terminal
        screen.resize(40, 9)
        screen.until(lambda lines: len(lines) == 9 and max(map(len, lines)) <= 40)

        screen.press("q")
        assert screen.ended() == 0
    # Without ever clearing the screen, and leaving the terminal as it was
    assert not any(code in screen.received for code in CLEAR)
    assert screen.received.endswith(b"\x1b[?25h\x1b[?1049l")


def test_top_ends_with_ctrl_c_and_needs_a_terminal(fdbq: Fdbq, name: str) -> None:
    with Screen([str(FDBQ), "top"], fdbq.environment) as screen:
        screen.shows("q quits")
        screen.interrupt()
        assert screen.ended() == 0
    assert b"Traceback" not in screen.received
    assert "top --once" in fdbq.refused("top", code=2)


def test_top_once_prints_a_table_anywhere(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    Queue(name).enqueue_many(db, [b"x"] * 3)
    Queue(name).receive(db)
    Queue(name).admin.pause(db)

    printed = fdbq.ok("top", "--once", "--interval", "0.2").out.splitlines()

    row = next(line for line in printed if line.startswith(name))
    assert row.split()[1:8] == ["(paused)", "2", "0", "0", "0", "1", "0"]


def test_hostile_names_and_payloads_do_nothing_on_any_screen(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    queue = Queue(name)
    queue.enqueue(db, b"\x1b]0;owned\x07\x1b[2J\xff\x9b31m<b>", headers={"\x1b[2Jh": "\x07"})
    delivery = take(db, queue, consumer="[bold]x")
    leases = ["message", "find", name, "--state", "leased"]
    for command in (leases, ["message", "show", name, delivery.id], [*leases, "--watch", "60"]):
        with Screen([str(FDBQ), *command], fdbq.environment) as screen:
            screen.shows(delivery.id)
            if "--watch" in command:
                screen.interrupt()
            assert screen.ended() == 0
        for bad in (b"\x1b]0;", b"\x1b[2J", b"\x07", b"\x9b31m"):
            assert bad not in screen.received, command
    queue.reject(db, delivery, "\x1b]0;owned\x07")
    for command in (
        ["message", "find", name, "--state", "dead"],
        ["message", "show", name, delivery.id],
    ):
        shown = fdbq.ok(*command).out
        assert "\x1b" not in shown
        assert "\\x1b]0;owned\\x07" in shown


def follow(fdbq: Fdbq, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [FDBQ, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**fdbq.environment, "PYTHONUNBUFFERED": "1"},
        text=True,
    )


def stopped(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=DEADLINE)
    assert (process.returncode, told) == (0, "")


def test_a_watched_listing_is_an_array_to_a_line(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    with follow(fdbq, "message", "find", name, "--json", "--watch", "0.1") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == []
        Queue(name).enqueue(db, b"now")
        while not (seen := json.loads(process.stdout.readline())):
            pass
        assert seen[0]["payload"] == "now"
        stopped(process)


def test_q_ends_a_watched_listing_on_a_terminal(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    sent = Queue(name).enqueue(db, b"x")
    with Screen([str(FDBQ), "message", "find", name, "--watch", "60"], fdbq.environment) as screen:
        screen.shows(sent)
        screen.press("q")
        assert screen.ended() == 0


def test_history_is_followed(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    assert "keeps no history" in fdbq.refused("queue", "history", name, code=1)
    queue = Queue(name)
    queue.set_options(db, history_seconds=3600)
    with follow(fdbq, "queue", "history", name, "--follow", "--json") as process:
        message_id = queue.enqueue(db, b"x")
        assert process.stdout is not None
        event = json.loads(process.stdout.readline())
        assert (event["transition"], event["id"]) == ("enqueue", message_id)
        stopped(process)


def test_metrics_are_served(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    Queue(name).enqueue(db, b"x", priority=9)
    with follow(fdbq, "metrics", "serve", "--port", "0", "--queue", name) as process:
        assert process.stdout is not None
        told = re.fullmatch(
            r"serving (http://127\.0\.0\.1:\d+/metrics)\n", process.stdout.readline()
        )
        assert told is not None
        with urllib.request.urlopen(told[1], timeout=DEADLINE) as answer:
            text = answer.read().decode()
        stopped(process)
    assert f'fdbqueue_messages{{level="0",queue="{name}",state="ready"}} 1.0' in text
    with follow(fdbq, "metrics", "serve", "--port", "0", "--queue", name) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(DEADLINE) == 128 + signal.SIGTERM
    assert "no queue 'nowhere'" in fdbq.refused("metrics", "serve", "--queue", "nowhere", code=1)


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("prometheus_client", ["metrics", "serve"], "metrics"), ("uvicorn", ["web"], "web")],
)
def test_a_server_without_its_extra_says_what_to_install(
    fdbq: Fdbq, package: str, command: list[str], extra: str
) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from fdbqueue.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program, *command],
        check=False,
        env=fdbq.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 1
    assert f"fdbqueue[{extra}]" in ended.stderr
    assert "internal" not in ended.stderr


def test_metrics_for_other_machines_are_served_with_a_word_about_it(fdbq: Fdbq, name: str) -> None:
    arguments = ("--port", "0", "--host", "0.0.0.0", "--hostname", "metrics.example.org")
    with follow(fdbq, "metrics", "serve", "--queue", name, *arguments) as process:
        assert process.stdout is not None
        port = process.stdout.readline().rpartition(":")[2].partition("/")[0]
        for host, status in (("metrics.example.org", 200), ("evil.example", 421)):
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=DEADLINE)
            connection.request("GET", "/metrics", headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE)
    assert told == "whoever reaches this machine can read them\n"


def test_web_pages_are_served_to_those_who_may_see_them(
    db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("vera viewer a-long-enough-secret\n")
    users.chmod(0o600)
    with follow(fdbq, "web", "--port", "0", "--users", str(users)) as process:
        assert process.stdout is not None
        told = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
        assert told is not None
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(told[1], timeout=DEADLINE)
        token = {"Authorization": "Bearer a-long-enough-secret"}
        with urllib.request.urlopen(
            urllib.request.Request(told[1], headers=token), timeout=DEADLINE
        ) as answer:
            text = answer.read().decode()
        events = urllib.request.Request(f"{told[1]}events", headers=token)
        with urllib.request.urlopen(events, timeout=DEADLINE) as open_page:
            first = open_page.readline()
            stopped(process)
            assert (first + open_page.read()).endswith(b"\n\n")  # not cut off
    assert name in text
    assert "--users" in fdbq.refused("web", "--host", "0.0.0.0", code=2)
    users.chmod(0o644)
    assert "chmod 600" in fdbq.refused("web", "--users", str(users), code=2)


def test_a_scrape_that_fails_is_told_in_one_line(fdbq: Fdbq, name: str) -> None:
    # Given a store that fails
    program = (
        "from fdbqueue import metrics\n"
        "from fdbqueue.cli.main import run\n"
        "metrics.QueueCollector.collect = lambda self: 1 / 0\n"
        f"run(['metrics', 'serve', '--port', '0', '--queue', {name!r}])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]

        try:
            with pytest.raises(urllib.error.HTTPError, match="500"):
                urllib.request.urlopen(url, timeout=DEADLINE)
        finally:
            process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=DEADLINE)
    assert told.startswith("/metrics cannot be answered: ")
    assert told.count("\n") == 1


def test_what_destroys_asks_first_in_a_terminal(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    Queue(name).enqueue(db, b"x")
    for answer, left in (("n\n", 1), ("y\n", 0)):
        with Screen([str(FDBQ), "message", "purge", name, "--all"], fdbq.environment) as screen:
            screen.shows("Purge 1 message of queue")
            screen.press(answer)
            assert screen.ended() == (1 if left else 0)
        assert Queue(name).depth(db).ready == left
