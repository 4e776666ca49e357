"""A process that uses a store until it is told to stop, or is killed.

Usage: worker.py STORE WORK NAME [ARGUMENT ...]. It prints one line after every commit that was
acknowledged, so that a test knows what must be there.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ["FDBQUEUE_STORE"] = f"embedded:{sys.argv[1]}"

import fdbqueue
from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded.storage import mailbox, versions, writer

ACCOUNTS = 8


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def append(db: Any, name: str, lists: str) -> None:
    """Append to lists by reading and writing them back, numbered, and say each number."""

    @fdb.transactional
    def once(tr: Any, number: int) -> None:
        key = b"list/%d" % (number % int(lists))
        # The outcome of the attempt before may be unknown: look before appending again.
        if tr[b"last/" + name.encode()] == b"%d" % number:
            return
        tr[key] = (tr[key].value or b"") + b"%s:%d," % (name.encode(), number)
        tr[b"last/" + name.encode()] = b"%d" % number

    number = 0
    while True:
        once(db, number)
        say(str(number))
        number += 1


def append_until(db: Any, name: str, lists: str, line: str) -> None:
    """The same, but the process dies where it first executes a line of the mailbox."""
    file, target = mailbox.__file__, int(line)

    def at_line(frame: Any, event: str, _: object) -> Any:
        if event == "line" and frame.f_lineno == target:
            os.kill(os.getpid(), signal.SIGKILL)
        return at_line

    sys.settrace(lambda frame, *_: at_line if frame.f_code.co_filename == file else None)
    append(db, name, lists)


def transfer(db: Any, name: str, rounds: str) -> None:
    """Move money between accounts; every observer must find the same total."""
    rng = random.Random(name)

    @fdb.transactional
    def once(tr: Any, source: int, target: int, amount: int) -> None:
        rows = tr.get_range_startswith(b"account/").to_list()
        assert sum(int(row.value) for row in rows) == ACCOUNTS * 100, "money was made or lost"
        balances = {row.key: int(row.value) for row in rows}
        here, there = b"account/%d" % source, b"account/%d" % target
        if here != there and balances[here] >= amount:
            tr[here] = b"%d" % (balances[here] - amount)
            tr[there] = b"%d" % (balances[there] + amount)

    for _ in range(int(rounds)):
        once(db, rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randrange(30))
    say("done")


def fill(db: Any, name: str, size: str) -> None:
    """Write values until the store cannot take one; then say why, and whether it recovers."""
    import resource

    from fdbqueue.store.embedded import StoreFull

    db[b"first"] = b"kept"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), hard))
    number = 0
    try:
        while True:
            db[b"fill/%08d" % number] = os.urandom(50_000)
            number += 1
    except StoreFull as error:
        say(f"full {number} {error}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert db[b"first"] == b"kept"
    rows = sum(1 for _ in db.get_range_startswith(b"fill/"))
    assert rows == number, (rows, number)
    db[b"after"] = b"recovered"
    say("recovered")


def increment(db: Any, name: str, times: str) -> None:
    """Increment one key; say how many attempts the longest of them took."""
    most = 0
    say("ready")
    sys.stdin.readline()
    for _ in range(int(times)):
        tr, attempts = db.create_transaction(), 0
        while True:
            attempts += 1
            try:
                before = int(tr[b"hot"].value or b"0")
                time.sleep(0.002)
                tr[b"hot"] = b"%d" % (before + 1)
                tr.commit().wait()
                break
            except fdb.FDBError as error:
                tr.on_error(error.code).wait()
        most = max(most, attempts)
    say(str(most))


def change(db: Any, name: str) -> None:
    """Set the key that each line of input names."""
    for line in sys.stdin:
        db[line.strip().encode()] = name.encode()
        say("set")


def change_slowly(db: Any, name: str) -> None:
    """The same, but each commit waits for one more line, between its announcement and its end."""

    def pause() -> float:
        sys.stdin.readline()
        return time.monotonic()

    vars(writer)["world"] = SimpleNamespace(monotonic=pause)
    change(db, name)


def change_unheard(db: Any, name: str) -> None:
    """The same, but commits wake nobody, as in releases before those that do."""
    setattr(versions.Sidecar, "wake", lambda _: None)  # noqa: B010
    change(db, name)


if __name__ == "__main__":
    WORK: dict[str, Callable[..., None]] = {
        "append": append,
        "append_until": append_until,
        "transfer": transfer,
        "fill": fill,
        "increment": increment,
        "change": change,
        "change_slowly": change_slowly,
        "change_unheard": change_unheard,
    }
    WORK[sys.argv[2]](fdbqueue.open(sys.argv[1]), *sys.argv[3:])
