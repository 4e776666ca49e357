"""All peers, by name."""

from __future__ import annotations

from .foundationdb import BlindSets, FdbQueue, Recipe
from .peer import Peer
from .postgres import PgQueuer, Procrastinate, SkipLocked
from .rabbitmq import RabbitMQ
from .redis import Dramatiq, Rq, Streams
from .sqlite import Huey, LiteQueue

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        FdbQueue(),
        Recipe(),
        BlindSets(),
        FdbQueue(server=True),
        Recipe(server=True),
        BlindSets(server=True),
        SkipLocked(),
        Procrastinate(),
        PgQueuer(),
        LiteQueue(),
        Huey(),
        RabbitMQ(),
        Streams(),
        Rq(),
        Dramatiq(),
    )
}
"""The order is that of the rows of the table."""
