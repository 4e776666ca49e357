"""What a search finds among the messages of a queue, whatever their state."""

from __future__ import annotations

import time
from contextlib import suppress

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...errors import InvalidArgument
from ...queue.admin import finding
from ...values.model import MessageState, parse_id
from ...values.selector.search import Search
from ..filters import MAX_CHECKED
from ..site import Site, link

SHOWN = 50
SECONDS = 3.0
"""For how long a search looks."""


def find(site: Site, request: Request) -> Response:
    """The page; that of the message itself for an id."""
    name, what = (request.query_params.get(each, "").strip() for each in ("queue", "what"))
    queue = site.queue(name)
    with suppress(InvalidArgument):
        parse_id(what)
        return RedirectResponse(link(request)("message", queue=name, id=what), 303)
    search = Search(what or "TRUE")
    now_ms, until = round(1000 * time.time()), time.monotonic() + SECONDS
    found: list[MessageState] = []
    checked, more = 0, False
    for each in finding.find(site.db, queue):
        # So many are looked at however slow the store is: else a busy one would show nothing.
        if len(found) == SHOWN or (checked >= MAX_CHECKED and time.monotonic() > until):
            more = True
            break
        checked += 1
        if search.matches(replace(each.message, death=each.death or each.message.death), now_ms):
            found.append(each)
    return site.page(
        request,
        "find.html",
        queue=name,
        what=what,
        found=found,
        checked=checked,
        more=more,
        unknown=None if found else search.unknown,
    )
