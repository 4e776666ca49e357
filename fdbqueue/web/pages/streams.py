"""What streams hold, and what bulk writes have staged: the plans and the sinks of a queue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...messages.streams.undecided import Undecided
from ...schema.streams import SinkState
from ..site import Site

SHOWN = 200


def streams(site: Site, request: Request) -> Response:
    """The page."""
    name = request.query_params.get("queue", "")
    queue = site.queue(name)
    planned = queue.streams.plans.list(site.db)
    known, staged = queue.streams.sinks(site.db), queue.streams.undecided(site.db)
    names = sorted({*known, *staged})
    return site.page(
        request,
        "streams.html",
        queue=name,
        plans=planned[:SHOWN],
        more_plans=len(planned) - SHOWN,
        sinks=[
            (each, known.get(each, SinkState()), staged.get(each, Undecided()))
            for each in names[:SHOWN]
        ],
        more_sinks=len(names) - SHOWN,
    )
