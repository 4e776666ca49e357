"""Producers in processes that are killed, forked, or end."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from fdbqueue import Queue
from fdbqueue.store.binding import fdb
from tests.acceptance.running import PROGRAMS
from tests.patience import DEADLINE

RUNS = 3
CONFIRMED = 400
"""How many messages a process has been told of when it is killed."""


def test_what_a_killed_process_was_told_is_there_once_and_the_rest_at_most_once(
    db: fdb.Database, queue: Queue, environment: dict[str, str]
) -> None:
    confirmed: dict[str, str] = {}
    # Given processes that are killed while their threads send
    for run in range(RUNS):
        with subprocess.Popen(
            [sys.executable, PROGRAMS / "sender.py", queue._root.key().hex(), str(run)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as sender:
            assert sender.stdout is not None
            lines = []
            for line in sender.stdout:
                lines.append(line)
                if len(lines) == CONFIRMED * (run + 1):
                    sender.kill()
            assert sender.wait(DEADLINE) == -9
        whole = [line.split() for line in lines if line.endswith("\n")]
        assert len(whole) >= CONFIRMED
        confirmed |= dict(whole)
    # Then what was confirmed is there, as it was told
    there: dict[str, str] = {}
    order: list[str] = []
    for message in queue.browse(db):
        order.append(message.payload.decode())
        there[message.payload.decode()] = message.id
    assert {payload: there.get(payload) for payload in confirmed} == confirmed
    # And nothing is there twice, and of each thread the first messages, in their order
    assert max(Counter(order).values()) == 1
    sent: dict[str, list[int]] = {}
    for payload in order:
        thread, n = payload.rsplit(":", 1)
        sent.setdefault(thread, []).append(int(n))
    for numbers in sent.values():
        assert numbers == list(range(len(numbers)))
    assert queue.depth(db).enqueued == len(order)
    assert queue.admin.verify(db).ok


def run(code: str, queue: Queue, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, queue._root.key().hex()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


BEGIN = """
import os, sys, threading
import fdbqueue
from fdbqueue.errors import StoreForked

db = fdbqueue.open()
queue = fdbqueue.Queue("orders", fdbqueue.fdb.Subspace(rawPrefix=bytes.fromhex(sys.argv[1])))
producer = queue.producer(db, linger=60)
for n in range(100):
    producer.send(b"parent %d" % n)
"""
ENDINGS = {
    "the end of the program": "",
    "an exit": "sys.exit(3)",
    "an exception": "raise ZeroDivisionError",
    "an exit handler that sends": """
import atexit
atexit.register(lambda: producer.send(b"last"))
""",
    "a thread that still sends": """
threading.Thread(target=lambda: producer.send(b"last")).start()
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_ends_without_closing_its_producer_loses_nothing(
    db: fdb.Database, queue: Queue, environment: dict[str, str], ending: str
) -> None:
    done = run(BEGIN + ENDINGS[ending], queue, environment)
    assert done.returncode == {"an exit": 3, "an exception": 1}.get(ending, 0), done.stderr
    expected = [b"parent %d" % n for n in range(100)] + [b"last"] * ("last" in ENDINGS[ending])
    assert [message.payload for message in queue.browse(db)] == expected


FORK = """
if not os.fork():
    try:
        future = producer.send(b"child")
        producer.close()
        print("sent", future.result(0))
    except StoreForked:
        print("refused")
    sys.exit()
os.wait()
producer.close()
"""


def test_a_forked_process_sends_its_own_messages_only(
    db: fdb.Database, queue: Queue, environment: dict[str, str], embedded: bool
) -> None:
    done = run(BEGIN + FORK, queue, environment)
    assert done.returncode == 0, done.stderr
    found = Counter(message.payload for message in queue.browse(db))
    parents = [b"parent %d" % n for n in range(100)]
    assert found == Counter(parents + [b"child"] * embedded)
    assert done.stdout.split()[0] == ("sent" if embedded else "refused")
