"""The web pages: how fast those of a thousand queues and of ten thousand limits are, and what
watching costs."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from statistics import median

import fdbqueue
from fdbqueue.queue.keys.shared_limits import Limits
from fdbqueue.queue.queue import Queue
from fdbqueue.store.binding import fdb

from .declare import Row, at_most, benchmark
from .processes import cpu_seconds

QUEUES, VIEWERS, CHANGES = 1_000, 10, 10
LIMITS, WAITING = 10_000, 200
"""How many limits the queues share, and for how many of them a message waits and one is out."""
AT_ONCE = 500
PAGES = 50
SECONDS = 15.0
RENDER_MS, CORE_SHARE, SHOWN_MS, KEPT_MS = 300.0, 0.03, 1_000.0, 15.0
"""The bars: the overview's time, the share of a core for ten viewers, how late a change is, and the
time of one queue's page on a kept connection."""


@benchmark("web")
def web() -> Iterator[Row]:
    """Check the bars of the web pages, with 1,000 queues, 10,000 limits and ten viewers."""
    root = f"bench-web-{uuid.uuid4().hex}"
    db = fdbqueue.open(create=True)
    space = fdb.Subspace((root,))
    try:
        queues = [Queue.create(db, f"queue-{n}", root=space) for n in range(QUEUES)]
        for queue in queues:
            queue.enqueue(db, b"x" * 100, priority=9)
            queue.enqueue(db, b"x" * 100)
        _limit(db, space)
        with _served(root) as (pid, port):
            yield from _measured(db, queues, pid, port)
    finally:
        db.clear_range_startswith(space.key())


def _limit(db: fdb.Database, space: fdb.Subspace) -> None:
    """Set the limits, and let messages of a queue of their own wait for the first of them."""
    limits = Limits(space)

    @fdb.transactional
    def some(tr: fdb.Transaction, begin: int) -> None:
        for n in range(begin, begin + AT_ONCE):
            limits["api", _tenant(n)].set(tr, concurrency=1, rate="1000/s")

    for begin in range(0, LIMITS, AT_ONCE):
        some(db, begin)
    queue = Queue.create(db, "limited", root=space)
    for n in range(WAITING):
        for _ in range(2):
            queue.enqueue(db, b"x" * 100, limits={"api": _tenant(n)})


def _tenant(n: int) -> str:
    return f"tenant-{n:05}"


def _measured(db: fdb.Database, queues: list[Queue[bytes]], pid: int, port: int) -> Iterator[Row]:
    def rendered(name: str, path: str, times: int = 1) -> Row:
        return at_most(name, median(_page(port, path) for _ in range(times)), RENDER_MS, "ms")

    _page(port, "/audit")  # its imports and templates
    yield rendered("overview, nobody views", "/")
    time.sleep(1.5)  # until the look before is too old to be shown
    yield rendered(f"overview with {QUEUES:,} rows, nobody views", f"/?limit={QUEUES}")
    _page(port, "/queue?queue=queue-0")  # its template
    with closing(_connection(port)) as kept:
        times = [_answer(kept, "/queue?queue=queue-0") for _ in range(PAGES)]
    yield at_most("one queue, on a kept connection", median(times), KEPT_MS, "ms")
    _page(port, "/limits?dimension=api&limit=none")  # its template
    for what, path in (
        ("the first", "/limits"),
        ("the largest page", "/limits?size=100"),
        ("the last page", f"/limits?after_dimension=api&after={_tenant(LIMITS - 51)}"),
        ("one of them, too", f"/limits?dimension=api&limit={_tenant(0)}"),
    ):
        yield rendered(f"{LIMITS:,} limits, {what}", path, 5)
    viewers = [_Viewer(port) for _ in range(VIEWERS)]
    for viewer in viewers:
        viewer.seen("queue-0", 2)
    time.sleep(3)  # the first look at everything is over
    yield rendered(f"overview, {VIEWERS} viewers", "/", 5)
    for what, changed in (("nothing moves", []), ("a change a second", queues[: CHANGES * 7 : 7])):
        began, started, late = cpu_seconds(pid), time.monotonic(), 0.0
        for queue in changed:
            sent = time.monotonic()
            queue.enqueue(db, b"x")
            for viewer in viewers:
                late = max(late, viewer.seen(queue.name, 3) - sent)
            time.sleep(max(0.0, 1.0 - (time.monotonic() - sent)))
        time.sleep(0 if changed else SECONDS)
        share = (cpu_seconds(pid) - began) / (time.monotonic() - started)
        yield at_most(f"{VIEWERS} viewers, {what}", 100 * share, 100 * CORE_SHARE, "% of a core")
    yield at_most("the latest sight of a change", 1_000 * late, SHOWN_MS, "ms")


@contextmanager
def _served(root: str) -> Iterator[tuple[int, int]]:
    program = "from fdbqueue.cli import main; main()"
    command = [sys.executable, "-c", program, "--root", root, "web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.pid, int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
        finally:
            server.terminate()


def _page(port: int, path: str) -> float:
    """How many milliseconds a page takes, with its connection."""
    with closing(_connection(port)) as connection:
        return _answer(connection, path)


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=60)


def _answer(connection: http.client.HTTPConnection, path: str) -> float:
    """How many milliseconds the answer to a request takes."""
    began = time.monotonic()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    return 1_000 * (time.monotonic() - began)


class _Viewer:
    """Receives the events of the overview, and notes when each row came."""

    def __init__(self, port: int) -> None:
        self._came: dict[tuple[str, int], float] = {}
        self._news = threading.Condition()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", f"/events?limit={QUEUES}")
        self._answer = connection.getresponse()
        threading.Thread(target=self._receive, daemon=True).start()

    def seen(self, queue: str, ready: int) -> float:
        """When the row of a queue came that says so; waits for it."""
        with self._news:
            assert self._news.wait_for(lambda: (queue, ready) in self._came, 60)
            return self._came[queue, ready]

    def _receive(self) -> None:
        try:
            for line in iter(self._answer.readline, b""):
                if not line.startswith(b"data: "):
                    continue
                at = time.monotonic()
                for name, row in json.loads(line[6:]).get("rows", {}).items():
                    ready = int(row.partition('data-label="Ready">')[2].partition("<")[0])
                    with self._news:
                        self._came.setdefault((name, ready), at)
                        self._news.notify_all()
        except (OSError, http.client.HTTPException, ValueError):
            return  # the server has ended
