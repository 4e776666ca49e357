"""The pages of messages: those of a queue in one state, dead letters, what a search finds, and one
message."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ...errors import InvalidArgument, QueueNotFound
from ...queue.admin import finding
from ...queue.continuations import results
from ...queue.overview import Surveyed, processes, producing, survey
from ...values.model import DeadMessage, MessageState, parse_id
from ...values.selector.search import Search
from ...values.text import visible
from .. import filters
from ..filters import MAX_CHECKED, Filter
from ..site import Values, Visit
from ..watcher import TIMEOUT_SECONDS

STATES = {each: each.capitalize() for each in ("ready", "waiting", "retrying", "scheduled")}
"""What the page of a queue lists; leases and dead letters have pages of their own."""
REASONS_READ, REASONS_SHOWN = 1_000, 12
"""Of how many dead letters the page counts the reasons, and how many reasons it shows."""
REASON_CHARACTERS = 120
FOUND, FIND_SECONDS = 50, 3.0
"""How many messages a search shows, and for how long it looks."""
SHOWN_BYTES = 65_536
JSON_BYTES = 262_144
DUMPED_BYTES = 4_096
ROW = 16
"""Of a payload: how much of a text is shown, parsed as JSON, and shown as bytes; and bytes of a
line of these."""


def queue(visit: Visit) -> Values:
    """A queue: its levels, its options, and the messages of one state."""
    db, handle, state = visit.db, visit.queue, visit.query.get("state", "ready")
    state = state if state in STATES else "ready"
    seen, wanted = _surveyed(visit), Filter.of(visit.query)
    found = filters.ListingPage[MessageState]([], None, 0)
    if seen.unreadable is None:

        def read(limit: int, after: str | None) -> Sequence[MessageState]:
            return handle.messages(db, state, limit, after)

        matches = wanted.predicate()

        def selected(each: MessageState) -> bool:
            return matches(each.message)

        found = filters.page(read, selected if wanted else None, visit.limit, visit.after)
    running = processes(db, root=visit.site.root, timeout=TIMEOUT_SECONDS)
    return {
        "seen": seen,
        "view": visit.site.watcher.look().views.get(visit.name),
        "producing": [*producing(running, visit.name, round(1000 * time.time()))],
        "options": seen.options.unusual(),
        "since_ms": handle.admin.ready_since_ms(db) if seen.unreadable is None else None,
        "states": STATES,
        "state": state,
        "filter": wanted,
        "page": found,
    }


def _surveyed(visit: Visit) -> Surveyed:
    """The state of the queue; raises ``QueueNotFound``."""
    found = survey(visit.db, [visit.name], root=visit.site.root, timeout=TIMEOUT_SECONDS)
    if visit.name not in found:
        raise QueueNotFound(name=visit.name)
    return found[visit.name]


def dead(visit: Visit) -> Values:
    """Dead letters: why they died, and which."""
    handle, seen, wanted = visit.queue, _surveyed(visit), Filter.of(visit.query)
    matches = wanted.predicate()

    def read(limit: int, after: str | None) -> Sequence[DeadMessage]:
        return handle.dead.list(visit.db, limit, after)

    def selected(each: DeadMessage) -> bool:
        return matches(replace(each.message, death=each.death))

    first = read(REASONS_READ, None)
    reasons = Counter(each.death.reason[:REASON_CHARACTERS] for each in first)
    return {
        "seen": seen,
        "filter": wanted,
        "reasons": reasons.most_common(REASONS_SHOWN),
        "others": max(0, len(reasons) - REASONS_SHOWN),
        "reason_characters": REASON_CHARACTERS,
        "counted": len(first),
        "page": filters.page(read, selected if wanted else None, visit.limit, visit.after),
    }


def find(visit: Visit) -> Values | Response:
    """What a search finds, whatever its state; the page of the message itself for an id."""
    queue, what = visit.queue, visit.query.get("what", "").strip()
    with suppress(InvalidArgument):
        parse_id(what)
        return RedirectResponse(visit.url("message", queue=visit.name, id=what), 303)
    search = Search(what or "TRUE")
    now_ms, until = round(1000 * time.time()), time.monotonic() + FIND_SECONDS
    found: list[MessageState] = []
    checked, more = 0, False
    for each in finding.find(visit.db, queue):
        # So many are looked at however slow the store is: else a busy one would show nothing.
        if len(found) == FOUND or (checked >= MAX_CHECKED and time.monotonic() > until):
            more = True
            break
        checked += 1
        if search.matches(replace(each.message, death=each.death or each.message.death), now_ms):
            found.append(each)
    unknown = None if found else search.unknown
    return {"what": what, "found": found, "checked": checked, "more": more, "unknown": unknown}


def message(visit: Visit) -> Response:
    """One message: where it is, its payload and headers, and what happened to it."""
    db, queue, message_id = visit.db, visit.queue, visit.query.get("id", "")
    found = queue.get(db, message_id)
    since_ms = None if found is None else found.message.enqueued_at_ms
    events, whole = finding.events(db, queue, message_id, since_ms)
    kept = results.kept(queue, db, message_id)
    text = value = None
    if found is not None:
        text = payload_text(found.message.payload, found.message.content_type)
    if kept is not None and kept.content_type is not None:
        value = payload_text(kept.result or b"", kept.content_type)
    return visit.page(
        "message.html",
        200 if found is not None or events or kept is not None else 404,
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


def payload(visit: Visit) -> Response:
    """The payload, byte for byte, as a file: no browser shows or runs it."""
    found = visit.queue.get(visit.db, visit.query.get("id", ""))
    if found is None:
        return PlainTextResponse("There is no such message any more.\n", 404)
    return Response(
        found.message.payload,
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="payload"'},
    )


class PayloadText(Struct, frozen=True):
    """kind: "JSON", "text" or "bytes". cut: whether the text is not all of it."""

    kind: str
    text: str
    size: int
    cut: bool


def payload_text(payload: bytes, content_type: str) -> PayloadText:
    """A payload of a message, or its beginning."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")) and len(payload) <= JSON_BYTES:
        try:
            text = json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            return PayloadText("JSON", *_lines(text, len(payload)))
    start = payload[:SHOWN_BYTES]
    try:
        # A character may be cut in half at the end.
        text = start.decode() if len(start) == len(payload) else _whole(start)
    except UnicodeDecodeError:
        dumped = payload[:DUMPED_BYTES]
        return PayloadText("bytes", _dump(dumped), len(payload), len(dumped) < len(payload))
    lines, size, cut = _lines(text, len(payload))
    return PayloadText("text", lines, size, cut or len(start) < len(payload))


def _whole(start: bytes) -> str:
    # A character has four bytes at most, so three of them can be there without the last.
    for missing in range(4):
        try:
            return start[: len(start) - missing].decode()
        except UnicodeDecodeError as error:
            last = error
    raise last


def _lines(text: str, size: int) -> tuple[str, int, bool]:
    """Text with its lines and tabs, and everything else that is not printable escaped."""
    shown = text[:SHOWN_BYTES]
    lines = ("\t".join(map(visible, line.split("\t"))) for line in shown.split("\n"))
    return "\n".join(lines), size, len(shown) < len(text)


def _dump(payload: bytes) -> str:
    """Sixteen bytes in a line: where, in hexadecimal, and as ASCII."""
    rows = []
    for start in range(0, len(payload), ROW):
        row = payload[start : start + ROW]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{3 * ROW}} {text}")
    return "\n".join(rows)
