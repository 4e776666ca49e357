"""RabbitMQ with a quorum queue and publisher confirms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..clients import NAME, Client
from .peer import Daemon, Peer


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


RABBITMQ = Peer(
    "RabbitMQ, quorum queue",
    _Channel,
    Daemon(
        "rabbitmq-server",
        "amqp://guest:guest@127.0.0.1:{port}/%2F",
        _Channel,
        after="rabbitmqctl stop",  # The script may leave its node behind.
        environment={
            "HOME": "{directory}",
            "RABBITMQ_NODENAME": "bench{port}@localhost",
            "RABBITMQ_NODE_PORT": "{port}",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": "{other}",
            "RABBITMQ_MNESIA_BASE": "{directory}/data",
            "RABBITMQ_LOG_BASE": "{directory}/logs",
            "RABBITMQ_ENABLED_PLUGINS_FILE": "{directory}/none",
        },
    ),
    "each confirm",
    ("pika",),
    enqueues_batches=False,
)
