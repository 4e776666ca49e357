"""RabbitMQ with a quorum queue and publisher confirms."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..clients import NAME, Client
from .peer import Peer, Server, free_port, running


class _Channel(Client):
    def __init__(self, address: str) -> None:
        import pika

        self.connection: Any = pika.BlockingConnection(pika.URLParameters(address))
        self.channel: Any = self.connection.channel()
        self.channel.queue_declare(NAME, durable=True, arguments={"x-queue-type": "quorum"})
        self.channel.confirm_delivery()
        self.properties = pika.BasicProperties(delivery_mode=2)

    def enqueue(self, payload: bytes) -> None:
        self.channel.basic_publish("", NAME, payload, self.properties, mandatory=True)

    def take(self, most: int) -> Sequence[bytes]:
        taken: list[Any] = []
        while len(taken) < most and (found := self.channel.basic_get(NAME))[0] is not None:
            taken.append(found)
        if taken:
            self.channel.basic_ack(taken[-1][0].delivery_tag, multiple=True)
        return [payload for _, _, payload in taken]


class RabbitMQ(Peer):
    name = "RabbitMQ, quorum queue"
    client = _Channel
    enqueues_batches = False
    durable = "each confirm"
    packages = ("pika",)
    programs = ("rabbitmq-server", "rabbitmqctl")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[Server]:
        port, distribution = free_port(), free_port()
        environment = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        }
        (directory / "plugins").write_text("[].\n")
        address = f"amqp://guest:guest@127.0.0.1:{port}/%2F"

        def ready() -> bool:
            try:
                _Channel(address).connection.close()
            except Exception:  # whatever pika raises while the node starts
                return False
            return True

        command = [self.program("rabbitmq-server")]
        try:
            with running(command, ready, directory / "log", environment=environment) as pid:
                yield Server(address, pid)
        finally:
            # The script may have left its node behind.
            subprocess.run(
                [self.program("rabbitmqctl"), "stop"],
                env=environment, capture_output=True, check=False,
            )  # fmt: skip
