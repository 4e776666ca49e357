"""The subscriptions of a queue: their cursors, and how many messages are still before them."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...queue.admin import finding
from ...schema.consumers import Definition
from ..site import Site

SHOWN, MOST = 100, 1_000
"""How many subscriptions the page shows, and how many messages of the lag of each are counted."""


class SubscriptionRow(Struct, frozen=True):
    """A subscription. lag: how many messages it has still to see, up to ``MOST``."""

    definition: Definition
    positions: dict[int, int]
    lag: int


def subscriptions(site: Site, request: Request) -> Response:
    """The page."""
    name = request.query_params.get("queue", "")
    queue = site.queue(name)
    found = queue.subscriptions.list(site.db)
    rows = []
    for definition in found[:SHOWN]:
        positions = queue.subscriptions.open(site.db, definition.name, create=False).positions(
            site.db
        )
        lag = finding.lag(site.db, queue, definition.name, MOST)
        rows.append(SubscriptionRow(definition, positions, lag))
    return site.page(
        request,
        "subscriptions.html",
        queue=name,
        rows=rows,
        total=len(found),
        most=MOST,
    )
