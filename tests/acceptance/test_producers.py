"""Producers in processes that are killed, forked, or end."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from fdbqueue import Queue
from fdbqueue.store.binding import fdb
from tests.patience import DEADLINE


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
