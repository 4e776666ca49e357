"""Every command with --json, in one session: the names in what they print are in a golden file.

``FDBQUEUE_GOLDEN=write`` writes it anew; read the difference before it is committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fdbqueue import Queue, fdb
from tests.acceptance.running import Ended, Fdbq
from tests.consumers import register
from tests.patience import DEADLINE

GOLDEN = Path(__file__).parent / "golden" / "session.txt"
OF_USERS = {"headers", "levels", "options", "payload", "places"}
"""Names of objects whose own names users choose, or that others hold."""


def names_in(printed: Any) -> Iterator[str]:
    """The names of an object, and of those within it."""
    for each in printed if isinstance(printed, list) else ():
        yield from names_in(each)
    for name, value in printed.items() if isinstance(printed, dict) else ():
        yield name
        if name not in OF_USERS:
            yield from names_in(value)


class Session:
    """Runs commands, and notes the names that each prints."""

    def __init__(self, fdbq: Fdbq, names: dict[str, str]) -> None:
        self._fdbq = fdbq
        self._names = names
        self._printed: dict[str, set[str]] = {}

    def __call__(self, *arguments: str, given: str = "", code: int = 0) -> Ended:
        """Run a command, with the names of queues put in for Q and R."""
        ended = self._fdbq(*(self._names.get(a, a) for a in arguments), given=given)
        assert ended.code == code, ended
        if "--json" in arguments and ended.out:
            command = " ".join(each for each in arguments[:2] if each not in self._names)
            self._printed.setdefault(command, set()).update(names_in(ended.lines))
        return ended

    @property
    def told(self) -> str:
        """The names, a command to a line."""
        every = sorted(self._printed.items())
        return "".join(f"{command}: {' '.join(sorted(names))}\n" for command, names in every)

    def until_ready(self, queue: str, identity: str) -> None:
        """Wait until a delayed message is ready, in about a second; write nothing down."""
        name = self._names[queue]
        words = "message", "find", name
        deadline = time.monotonic() + DEADLINE
        while identity not in self._fdbq.ok(*words, "--state", "ready", "--json").out:
            assert time.monotonic() < deadline
            self._fdbq.ok("debug", "sweep", name)
            time.sleep(0.1)


def test_a_session_prints_the_names_that_it_printed_before(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    run = Session(fdbq, {"R": f"{name}-other", "Q": name})
    try:
        the_life_of_a_queue(run)
        messages_out_of_order(run, lambda token, reason: _reject(db, name, token, reason))
        whom_it_concerns(run, db, name)
        what_streams_have(run, db, name)
        the_end(run)
    finally:
        if f"{name}-other" in fdbq.ok("queue", "list").out:
            fdbq.ok("queue", "delete", f"{name}-other", "--yes")
    if os.environ.get("FDBQUEUE_GOLDEN") == "write":
        GOLDEN.write_text(run.told)
    assert run.told == GOLDEN.read_text()


def the_life_of_a_queue(run: Session) -> None:
    run("queue", "create", "R", "--levels", "3", "--set", "max_attempts=2", "--json")
    run("queue", "set", "Q", "history_seconds=3600", "lease=60", "bounds.messages=1000", "--json")
    run("queue", "pause", "Q", "--json")
    run("enqueue", "Q", "waits", "--json")
    run("receive", "Q", "--json")
    run("queue", "resume", "Q", "--json")
    run("queue", "show", "Q", "--json")
    run("receive", "Q", "--ack", "--json")


def _reject(db: fdb.Database, name: str, token: str, reason: str) -> None:
    delivery = Queue(name).admin.delivery(db, bytes.fromhex(token))
    assert delivery is not None
    Queue(name).reject(db, delivery, reason)


def messages_out_of_order(run: Session, reject: Callable[[str, str], None]) -> None:
    lines = [
        '{"payload": "a", "priority": 9, "headers": {"region": "eu", "weight": 1.5}}',
        '{"payload_base64": "/w==", "headers": {"region": null}}',
        '{"payload": "c", "priority": 0, "key": "customer 7", "unique": "c", "ttl": 3600}',
        '{"payload": "later", "delay": 3600}',
    ]
    run("enqueue", "Q", "--json", given="\n".join(lines))
    delayed = run("enqueue", "Q", "next year", "--delay", "31536000", "--json").json["id"]
    run("message", "show", "Q", delayed, "--json")
    run("message", "cancel", "Q", delayed, "--dry-run", "--json")
    run("message", "cancel", "Q", delayed, "--yes", "--json")
    run("message", "cancel", "Q", delayed, "--yes", "--json", code=1)
    first, *_ = run("message", "find", "Q", "--json").lines
    run("message", "find", "Q", "--match", "region = 'eu' OR priority = 0", "--json")
    run("message", "show", "Q", first["id"], "--json")
    one, two, three = run("receive", "Q", "--max", "3", "--consumer", "billing", "--json").lines
    run("message", "show", "Q", one["id"], "--json")
    run("message", "release", "Q", one["token"], "--json")
    run("message", "release", "Q", one["token"], "--json", code=1)
    run("receive", "Q", "--ack", "--json")
    run("message", "release", "Q", two["token"], "--error", "no stock", "--json")
    reject(three["token"], "no such customer")
    dead = three["id"]
    run("message", "find", "Q", "--state", "dead", "--json")
    run("message", "show", "Q", dead, "--json")
    run("message", "retry", "Q", "--match", "priority = 0", "--dry-run", "--json")
    run("message", "retry", "Q", dead, "--json")
    run.until_ready("Q", two["id"])
    (again,) = run("receive", "Q", "--json").lines
    run("message", "release", "Q", again["token"], "--delay", "1d", "--yes", "--json")
    run("message", "purge", "Q", again["id"], "--yes", "--json")
    run("receive", "Q", "--consumer", "billing", "--json")
    run("message", "find", "Q", "--state", "leased", "--json")
    run("message", "release", "Q", "--consumer", "billing", "--dry-run", "--json")
    run("message", "release", "Q", "--consumer", "billing", "--yes", "--json")


def whom_it_concerns(run: Session, db: fdb.Database, name: str) -> None:
    run("subscription", "create", "Q", "eu", "--match", "region = 'eu'", "--json")
    run("subscription", "create", "Q", "audit", "--mode", "browse", "--start", "now", "--json")
    run("subscription", "list", "Q", "--json")
    run("enqueue", "Q", "for eu", "--header", "region=eu", "--json")
    run("receive", "Q", "--subscription", "eu", "--ack", "--json")
    run("enqueue", "Q", "for us", "--header", "region=us", "--json")
    run("receive", "Q", "--match", "region = 'us'", "--ack", "--json")
    run("subscription", "seek", "Q", "audit", "first", "--json")
    run("subscription", "list", "Q", "--json")
    run("subscription", "delete", "Q", "audit", "--dry-run", "--json")
    run("subscription", "delete", "Q", "audit", "--yes", "--json")
    # Given a consumer
    consumer = register(db, Queue(name), "billing", 3)
    run("worker", "list", "Q", "--json")
    run("debug", "sweep", "Q", "--json")
    run("debug", "sweep", "Q", "--evict", consumer.id.hex(), "--json", code=2)
    run("debug", "sweep", "Q", "--evict", consumer.id.hex(), "--yes", "--json")


def what_streams_have(run: Session, db: fdb.Database, name: str) -> None:
    # Given a stream that has stopped
    run("enqueue", "R", "--json", given='{"payload": "x"}\n' * 3)
    stream = Queue(f"{name}-other").streams.plans.planner("stream")
    stream.next(db, stream.begin(db), messages=2)
    run("stream", "list", "R", "--json")
    plan = ("--state", "leased", "--consumer", "stream", "--json")
    (held, _) = run("message", "find", "R", *plan).json
    run("message", "show", "R", held["id"], "--json")
    run("message", "release", "R", held["token"], "--yes", code=1)
    run("stream", "finish", "R", "stream", "--dry-run", "--json")
    run("stream", "forget", "R", "stream", "--yes", "--json")
    run("stream", "finish", "R", "stream", "--yes", "--json", code=1)


def the_end(run: Session) -> None:
    run("queue", "history", "Q", "--max", "3", "--json")
    run("queue", "history", "Q", "--all", "--json")
    run("enqueue", "Q", "--json", given='{"payload": "x", "headers": {"n": 1}}\n' * 3)
    run("message", "copy", "Q", "R", "--match", "n = 1", "--yes", "--json")
    run("message", "move", "Q", "R", "--all", "--dry-run", "--json")
    run("message", "move", "Q", "R", "--all", "--yes", "--json")
    run("enqueue", "Q", "later", "--delay", "3600", "--header", "region=eu")
    late = ("--state", "scheduled", "--match", "region = 'eu'")
    run("message", "purge", "Q", *late, "--dry-run", "--json")
    run("message", "move", "Q", "R", *late, "--dry-run", "--json")
    run("message", "purge", "Q", *late, "--yes", "--json")
    run("message", "purge", "R", "--match", "n = 1", "--dry-run", "--json")
    run("message", "purge", "R", "--match", "n = 1", "--yes", "--json")
    run("message", "purge", "R", "--all", "--yes", "--json")
    run("message", "purge", "Q", "--all", "--state", "dead", "--yes", "--json")
    run("debug", "sweep", "Q", "--json")
    run("queue", "show", "Q", "--json")
    run("queue", "delete", "R", "--dry-run", "--json")
    run("queue", "delete", "R", "--yes", "--json")
