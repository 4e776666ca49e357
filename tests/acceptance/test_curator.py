"""The drain of Curator's queues, from a ZooKeeper that Curator has written to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.examples import drain_curator
from fdbqueue import Queue, fdb
from tests.acceptance.running import PROGRAMS, told
from tests.needs import require_curator
from tests.patience import DEADLINE
from tests.taking import ready

SCRIPT = Path(drain_curator.__file__)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper with a queue of each kind."""
    java = require_curator()
    process = subprocess.Popen(
        [*java, PROGRAMS / "CuratorQueues.java", tmp_path_factory.mktemp("zookeeper")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield told(process)
        process.communicate()


@pytest.fixture
def zk(hosts: str) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_queue_of_each_class_is_drained(zk: Any, db: fdb.Database, name: str) -> None:
    queue = Queue.open(db, name)

    assert drain_curator.drain(zk, "/queue", "queue", db, queue) == []
    assert ready(db, queue) == [b"a", b"b", b"c", b"", b"d"]
    queue.purge(db)

    assert drain_curator.drain(zk, "/simple", "simple", db, queue) == []
    assert ready(db, queue) == [b"first", b"second"]
    queue.purge(db)

    assert drain_curator.drain(zk, "/id", "id", db, queue) == []
    found = [(message.payload, message.headers) for message in queue.peek(db, 9)]
    assert found == [(b"x", {"item_id": "17"}), (b"y", {"item_id": "a_b"})]
    queue.purge(db)

    assert drain_curator.drain(zk, "/delay", "delay", db, queue) == []
    assert ready(db, queue) == [b"now"]
    (later,) = queue.messages(db, state="scheduled")
    assert later.due_at_ms == 1_937_000_000_000

    for path in ("/queue", "/simple", "/id", "/delay"):
        assert zk.get_children(path) == []


def test_the_script_keeps_the_order_of_priorities_and_of_what_was_requeued(
    hosts: str, zk: Any, db: fdb.Database, name: str, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "priority", hosts, "/priority", name],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    expected = ["requeued", "-3", "-3 again", "0", "7", "7 again", "largest"]
    assert ready(db, Queue.open(db, name)) == [each.encode() for each in expected]
    assert zk.get_children("/priority") == []
