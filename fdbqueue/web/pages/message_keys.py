"""The keys of a queue: which have messages that wait, their limits, and who holds their slots."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...queue.internals import Internals
from ...queue.queue import Queue
from ...values.limits import KeyState
from ..site import Site, cut, number
from .queue import MAX_PAGE, PAGE


def keys(site: Site, request: Request) -> Response:
    """The page."""
    query = request.query_params
    name, key = query.get("queue", ""), query.get("key", "")
    queue = site.queue(name)
    options = queue.options(site.db)
    limit, after = number(query, "limit", PAGE, MAX_PAGE), query.get("after") or None
    waiting = {each.key: each for each in queue.keys.waiting(site.db, limit + 1, after=after)}
    own = queue.keys.limited(site.db, limit + 1, after=after)
    names, following = cut(sorted({*waiting, *own}), limit)
    return site.page(
        request,
        "keys.html",
        queue=name,
        options=options,
        names=names,
        states=_states(site, queue, names),
        waiting=waiting,
        own=own,
        after=after or "",
        following=following,
        key=key,
        state=queue.keys[key].state(site.db) if key else None,
    )


def _states(site: Site, queue: Queue[bytes], names: list[str]) -> dict[str, KeyState]:
    """The states of several keys, in one transaction."""
    return Internals(queue).read(
        site.db, lambda tr: {name: queue.keys[name].state(tr) for name in names}
    )
