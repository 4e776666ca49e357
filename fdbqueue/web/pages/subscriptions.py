"""The subscriptions of a queue: their cursors, and how many messages are still before them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...schema.consumers import Definition
from ...values.model import MessageState, Position, parse_id
from ..site import Site

SHOWN, LOOKED_AT = 100, 1_000
"""How many subscriptions the page shows, and at how many messages it looks for their lag."""


class Row(Struct, frozen=True):
    """A subscription. lag: how many of the first messages it has still to see."""

    definition: Definition
    positions: dict[int, int]
    lag: int


def subscriptions(site: Site, request: Request) -> Response:
    """The page."""
    name = request.query_params.get("queue", "")
    queue = site.queue(name)
    found = queue.subscriptions.list(site.db)
    ready = queue.messages(site.db, "ready", LOOKED_AT) if found else []
    now_ms = queue._clock.now_ms(site.db)
    rows = []
    for definition in found[:SHOWN]:
        positions = queue.subscriptions.open(site.db, definition.name, create=False).positions(
            site.db
        )
        rows.append(Row(definition, positions, _lag(definition, positions, ready, now_ms)))
    return site.page(
        request,
        "subscriptions.html",
        queue=name,
        rows=rows,
        total=len(found),
        looked_at=len(ready),
        more=bool(ready and queue.messages(site.db, "ready", 1, ready[-1].id)),
    )


def _lag(
    definition: Definition,
    positions: dict[int, int],
    ready: Sequence[MessageState],
    now_ms: int,
) -> int:
    selector = definition.selector
    return sum(
        1
        for each in ready
        if _index(each) > positions.get(each.message.level, 0)
        and (selector is None or selector.matches(each.message, now_ms))
    )


def _index(found: MessageState) -> int:
    place = parse_id(found.id)
    return place.index if isinstance(place, Position) else 0
