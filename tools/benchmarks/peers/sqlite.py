"""Queues in one SQLite file: litequeue and huey."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..clients import NAME, Client
from .handled import record
from .peer import Peer, Store


class _LiteQueue(Client):
    def __init__(self, path: str) -> None:
        from litequeue import LiteQueue as Queue

        self.queue: Any = Queue(path, timeout=60)
        # It asks for NORMAL, with which a crash of the machine loses the last commits.
        self.queue.conn.execute("PRAGMA synchronous = FULL")

    def enqueue(self, payload: bytes) -> None:
        self.queue.put(payload.decode())

    def put(self, payloads: Sequence[bytes]) -> None:
        with self.queue.transaction(mode="IMMEDIATE"):
            super().put(payloads)

    def take(self, most: int) -> Sequence[bytes]:
        taken: list[bytes] = []
        while len(taken) < most and (message := self.queue.pop()) is not None:
            self.queue.done(message.message_id)
            taken.append(message.data.encode())
        return taken

    def rest(self) -> Sequence[bytes]:
        ready = f"SELECT data FROM {self.queue.table} WHERE status = 0"
        return [row[0].encode() for row in self.queue.conn.execute(ready)]


class _Huey(Client):
    def __init__(self, path: str) -> None:
        from huey import SqliteHuey

        self.huey: Any = SqliteHuey(NAME, filename=path, fsync=True, results=False, timeout=60)
        self.task = self.huey.task(name="record")(record)

    def enqueue(self, payload: bytes) -> None:
        self.task(payload)

    def take(self, most: int) -> Sequence[bytes]:
        taken: list[bytes] = []
        while len(taken) < most and (task := self.huey.dequeue()) is not None:
            taken.append(task.args[0])
        return taken

    def rest(self) -> Sequence[bytes]:
        return [task.args[0] for task in self.huey.pending()]


def _consume(address: str) -> None:
    _Huey(address).huey.create_consumer(workers=1, periodic=False, initial_delay=0.01).run()


LITEQUEUE = Peer("litequeue", _LiteQueue, Store(), packages=("litequeue",), receives_batches=False)
HUEY = Peer(
    "huey, at most once",
    _Huey,
    Store(),
    packages=("huey",),
    work=_consume,
    enqueues_batches=False,
    receives_batches=False,
)
