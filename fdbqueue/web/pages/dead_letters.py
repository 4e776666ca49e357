"""The dead letters of a queue: why they died, and which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ...values.model import DeadMessage
from .. import filters
from ..filters import Filter
from ..site import Site, number
from .queue import MAX_PAGE, PAGE, surveyed

REASONS_READ, REASONS_SHOWN = 1_000, 12
"""Of how many dead letters the page counts the reasons, and how many reasons it shows."""
REASON_CHARACTERS = 120


def dead_letters(site: Site, request: Request) -> Response:
    """The page."""
    query = request.query_params
    name = query.get("queue", "")
    handle = site.queue(name)
    seen = surveyed(site, name)
    wanted = Filter.of(query)
    matches = wanted.predicate()

    def read(limit: int, after: str | None) -> Sequence[DeadMessage]:
        return handle.dead.list(site.db, limit, after)

    def selected(each: DeadMessage) -> bool:
        return matches(replace(each.message, death=each.death))

    after = query.get("after") or None
    limit = number(query, "limit", PAGE, MAX_PAGE)
    first = read(REASONS_READ, None)
    reasons = Counter(each.death.reason[:REASON_CHARACTERS] for each in first)
    return site.page(
        request,
        "dead_letters.html",
        queue=name,
        seen=seen,
        filter=wanted,
        after=after or "",
        reasons=reasons.most_common(REASONS_SHOWN),
        others=max(0, len(reasons) - REASONS_SHOWN),
        reason_characters=REASON_CHARACTERS,
        counted=len(first),
        page=filters.page(read, selected if wanted else None, limit, after),
    )
