"""The groups of a queue: how far each has come, and what follows it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..site import Site, cut, number
from .queue import MAX_PAGE, PAGE


def groups(site: Site, request: Request) -> Response:
    """The page: all of them, or the one that is asked for."""
    query = request.query_params
    name, wanted = query.get("queue", ""), query.get("group", "")
    known = site.queue(name).groups
    limit, after = number(query, "limit", PAGE, MAX_PAGE), query.get("after") or None
    if wanted:
        one = known.get(site.db, wanted)
        found = [] if one is None else [one]
    else:
        found = known.list(site.db, limit + 1, after=after)
    shown, last = cut(found, limit)
    return site.page(
        request,
        "groups.html",
        queue=name,
        group=wanted,
        groups=shown,
        after=after or "",
        following=None if last is None else last.name,
    )
