"""The limits that the queues of the root share: what is out of each, and who waits for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..site import Site, cut, number
from .queue import PAGE

MAX_PAGE = 100


def limits(site: Site, request: Request) -> Response:
    """The page: all of them, and more of the one that is asked for."""
    query = request.query_params
    known = site.limits()
    dimension, name = query.get("dimension", ""), query.get("limit", "")
    after = query.get("after_dimension", ""), query.get("after", "")
    size = number(query, "size", PAGE, MAX_PAGE)
    shown, last = cut(known.list(site.db, size + 1, after=after if all(after) else None), size)
    return site.page(
        request,
        "limits.html",
        queue=None,
        dimension=dimension,
        name=name,
        state=known[dimension, name].state(site.db) if dimension or name else None,
        # One by one: each may have a thousand messages that are out.
        limits=[known[each.dimension, each.name].state(site.db) for each in shown],
        first=not all(after),
        following=last,
    )
