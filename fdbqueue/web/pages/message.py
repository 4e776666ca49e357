"""One message: where it is, its payload and headers, and what happened to it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...queue.admin import finding
from ...queue.continuations import results
from ...values.model import MessageState
from ..payload_text import payload_text
from ..site import Site
from .queue import STATES


def message(site: Site, request: Request) -> Response:
    """The page."""
    name, message_id = request.query_params.get("queue", ""), request.query_params.get("id", "")
    found = _find(site, name, message_id)
    since_ms = None if found is None else found.message.enqueued_at_ms
    events, whole = finding.events(site.db, site.queue(name), message_id, since_ms)
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
