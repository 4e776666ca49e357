"""The schedules of a queue: when they tick, and what came of them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..site import Site, cut, number
from .queue import MAX_PAGE, PAGE


def schedules(site: Site, request: Request) -> Response:
    """The page."""
    query = request.query_params
    name = query.get("queue", "")
    limit, after = number(query, "limit", PAGE, MAX_PAGE), query.get("after") or None
    found, last = cut(site.queue(name).schedules.list(site.db, limit + 1, after=after), limit)
    return site.page(
        request,
        "schedules.html",
        queue=name,
        schedules=found,
        after=after or "",
        following=None if last is None else last.name,
    )
