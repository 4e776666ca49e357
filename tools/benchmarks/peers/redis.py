"""Redis with an append-only file: streams, RQ and Dramatiq."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from ..clients import NAME, Client
from .handled import record
from .peer import Daemon, Peer

GROUP = "consumers"


def _connect(address: str) -> Any:
    import redis

    connection: Any = redis.Redis.from_url(address)
    connection.ping()
    return connection


REDIS = Daemon(
    "redis-server --port 0 --unixsocket {directory}/redis.sock --dir {directory} --appendonly yes",
    "unix://{directory}/redis.sock",
    _connect,
)


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


class _Rq(Client):
    def __init__(self, address: str) -> None:
        import rq

        self.queue: Any = rq.Queue(NAME, connection=_connect(address))

    def enqueue(self, payload: bytes) -> None:
        self.queue.enqueue(record, payload, result_ttl=0)

    def put(self, payloads: Sequence[bytes]) -> None:
        data = self.queue.prepare_data
        self.queue.enqueue_many([data(record, (each,), result_ttl=0) for each in payloads])


def _work_on_jobs(address: str) -> None:
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


def _act(address: str) -> None:
    import dramatiq

    dramatiq.Worker(_Dramatiq(address).broker, worker_threads=8).start()
    threading.Event().wait()


WITHIN = "within a second"
STREAMS = Peer("Redis streams", _Stream, REDIS, WITHIN, ("redis",))
RQ = Peer("RQ", _Rq, REDIS, WITHIN, ("redis", "rq"), work=_work_on_jobs, takes=False)
DRAMATIQ = Peer(
    "Dramatiq",
    _Dramatiq,
    REDIS,
    WITHIN,
    ("redis", "dramatiq"),
    work=_act,
    enqueues_batches=False,
    takes=False,
)
