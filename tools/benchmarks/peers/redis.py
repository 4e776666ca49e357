"""Redis with an append-only file: streams, RQ and Dramatiq."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..clients import NAME, Client
from .handled import record
from .peer import Peer, Server, running

GROUP = "consumers"


class _OnRedis(Peer):
    durable = "within a second"
    programs = ("redis-server",)

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        import redis

        socket = directory / "redis.sock"
        command = [
            self.program("redis-server"), "--port", "0", "--unixsocket", str(socket), "--dir",
            str(directory), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
        ]  # fmt: skip

        def ready() -> bool:
            try:
                return bool(redis.Redis(unix_socket_path=str(socket)).ping())
            except redis.ConnectionError:
                return False

        with running(command, ready, directory / "log") as pid:
            yield Server(f"unix://{socket}", pid)


def _connect(address: str) -> Any:
    import redis

    return redis.Redis.from_url(address)


class _Stream(Client):
    def __init__(self, address: str) -> None:
        import redis

        self.redis, self.me = _connect(address), str(os.getpid())
        try:
            self.redis.xgroup_create(NAME, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def enqueue(self, payload: bytes) -> None:
        self.redis.xadd(NAME, {"p": payload})

    def put(self, payloads: Sequence[bytes]) -> None:
        with self.redis.pipeline(transaction=False) as pipeline:
            for payload in payloads:
                pipeline.xadd(NAME, {"p": payload})
            pipeline.execute()

    def take(self, most: int) -> Sequence[bytes]:
        found = self.redis.xreadgroup(GROUP, self.me, {NAME: ">"}, count=most)
        streams = found.values() if isinstance(found, dict) else [each[1] for each in found or ()]
        entries = [entry for stream in streams for entry in stream]
        if entries:
            ids = [entry[0] for entry in entries]
            with self.redis.pipeline(transaction=False) as pipeline:
                pipeline.xack(NAME, GROUP, *ids)
                pipeline.xdel(NAME, *ids)
                pipeline.execute()
        return [entry[1][b"p"] for entry in entries]


class Streams(_OnRedis):
    name = "Redis streams"
    client = _Stream
    packages = ("redis",)


class _Rq(Client):
    def __init__(self, address: str) -> None:
        import rq

        self.queue: Any = rq.Queue(NAME, connection=_connect(address))

    def enqueue(self, payload: bytes) -> None:
        self.queue.enqueue(record, payload, result_ttl=0)

    def put(self, payloads: Sequence[bytes]) -> None:
        data = self.queue.prepare_data
        self.queue.enqueue_many([data(record, (each,), result_ttl=0) for each in payloads])


class Rq(_OnRedis):
    name = "RQ"
    client = _Rq
    packages = ("redis", "rq")
    takes = False
    works = True

    def work(self, address: str) -> None:
        import rq

        rq.Worker([NAME], connection=_connect(address)).work(logging_level="WARNING")


class _Dramatiq(Client):
    def __init__(self, address: str) -> None:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self.broker: Any = RedisBroker(url=address)
        dramatiq.set_broker(self.broker)
        self.actor: Any = dramatiq.actor(record, queue_name=NAME, broker=self.broker)

    def enqueue(self, payload: bytes) -> None:
        self.actor.send(payload.decode())


class Dramatiq(_OnRedis):
    name = "Dramatiq"
    client = _Dramatiq
    enqueues_batches = receives_batches = False
    packages = ("redis", "dramatiq")
    takes = False
    works = True

    def work(self, address: str) -> None:
        import dramatiq

        dramatiq.Worker(_Dramatiq(address).broker, worker_threads=8).start()
        threading.Event().wait()
