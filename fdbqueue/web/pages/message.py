"""One message: where it is, its payload and headers, and what happened to it."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...queue.continuations import results
from ...values.model import Event, MessageState
from ..payload_text import payload_text
from ..site import Site
from .history import since
from .queue import STATES

STEP, MAX_READ = 1_000, 10_000
"""How many events of the queue one transaction reads, and one page."""
SKEW_SECONDS = 60.0
"""How far the clock of a producer may be ahead, at most."""


def message(site: Site, request: Request) -> Response:
    """The page."""
    name, message_id = request.query_params.get("queue", ""), request.query_params.get("id", "")
    found = _find(site, name, message_id)
    events, whole = _events(site, name, message_id, found)
    kept = results.kept(site.queue(name), site.db, message_id)
    text = value = None
    if found is not None:
        text = payload_text(found.message.payload, found.message.content_type)
    if kept is not None and kept.content_type is not None:
        value = payload_text(kept.result or b"", kept.content_type)
    return site.page(
        request,
        "message.html",
        200 if found is not None or events or kept is not None else 404,
        queue=name,
        id=message_id,
        found=found,
        states=STATES,
        text=text,
        asked=found is not None and found.message.keep_result_ms is not None,
        result=kept,
        value=value,
        events=events,
        whole=whole,
    )


def payload(site: Site, request: Request) -> Response:
    """The payload, byte for byte, as a file: no browser shows or runs it."""
    name, message_id = request.query_params.get("queue", ""), request.query_params.get("id", "")
    found = _find(site, name, message_id)
    if found is None:
        return PlainTextResponse("There is no such message any more.\n", 404)
    return Response(
        found.message.payload,
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="payload"'},
    )


def _find(site: Site, name: str, message_id: str) -> MessageState | None:
    return site.queue(name).get(site.db, message_id)


def _events(
    site: Site, name: str, message_id: str, known: MessageState | None
) -> tuple[list[Event], bool]:
    """What the history says of a message, and whether all of the history was read: all since the
    message was enqueued, if that is known."""
    queue = site.queue(name)
    found: list[Event] = []
    after = b""
    if known is not None:
        ago = time.time() - known.message.enqueued_at_ms / 1000 + SKEW_SECONDS
        after = since(site, name, ago)
    for _ in range(MAX_READ // STEP):
        some = queue.history(site.db, STEP, after)
        found += [event for event in some if event.id == message_id]
        if len(some) < STEP:
            return found, True
        after = some[-1].stamp
    return found, False
