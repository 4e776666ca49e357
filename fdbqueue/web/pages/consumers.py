"""The consumers of a queue, and the leases that they hold."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..site import Site, cut, number
from .queue import MAX_PAGE, PAGE

CONSUMERS = 500


def consumers(site: Site, request: Request) -> Response:
    """The page."""
    query = request.query_params
    name = query.get("queue", "")
    queue = site.queue(name)
    limit = number(query, "limit", PAGE, MAX_PAGE)
    text = query.get("after", "")
    after = bytes.fromhex(text) if _is_token(text) else None
    leases, last = cut(queue.admin.leases(site.db, limit + 1, after), limit)
    everyone = queue.admin.consumers(site.db)
    return site.page(
        request,
        "consumers.html",
        queue=name,
        consumers=everyone[:CONSUMERS],
        total=len(everyone),
        works={(f"{one.host}:{one.process}", work) for one in everyone for work in one.work},
        leases=leases,
        after=text if after else "",
        following=None if last is None else last.delivery.token.hex(),
    )


def _is_token(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False
