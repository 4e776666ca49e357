"""One queue: its levels, its options, and the messages of one state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from ...errors import QueueNotFound
from ...queue.overview import Surveyed, processes, producing, survey
from ...values.model import MessageState
from .. import filters
from ..filters import Filter
from ..site import Site, number
from ..watcher import TIMEOUT_SECONDS

PAGE, MAX_PAGE = 50, 200
STATES = {each: each.capitalize() for each in ("ready", "waiting", "retrying", "scheduled")}
"""What the page lists; leases and dead letters have pages of their own."""


def queue(site: Site, request: Request) -> Response:
    """The page."""
    query = request.query_params
    name, state = query.get("queue", ""), query.get("state", "ready")
    state = state if state in STATES else "ready"
    handle = site.queue(name)
    seen = surveyed(site, name)
    wanted = Filter.of(query)
    found = filters.ListingPage[MessageState]([], None, 0)
    if seen.unreadable is None:

        def read(limit: int, after: str | None) -> Sequence[MessageState]:
            return handle.messages(site.db, state, limit, after)

        matches = wanted.predicate()
        selected: Callable[[MessageState], bool] = lambda each: matches(each.message)  # noqa: E731
        limit = number(query, "limit", PAGE, MAX_PAGE)
        found = filters.page(read, selected if wanted else None, limit, query.get("after") or None)
    running = processes(site.db, root=site.root, timeout=TIMEOUT_SECONDS)
    view = site.watcher.look().views.get(name)
    return site.page(
        request,
        "queue.html",
        queue=name,
        seen=seen,
        view=view,
        producing=[*producing(running, name, round(1000 * time.time()))],
        options=seen.options.unusual(),
        since_ms=handle.admin.ready_since_ms(site.db) if seen.unreadable is None else None,
        states=STATES,
        state=state,
        filter=wanted,
        after=query.get("after", ""),
        page=found,
    )


def surveyed(site: Site, name: str) -> Surveyed:
    """The state of one queue; raises ``QueueNotFound``."""
    found = survey(site.db, [name], root=site.root, timeout=TIMEOUT_SECONDS)
    if name not in found:
        raise QueueNotFound(name=name)
    return found[name]
