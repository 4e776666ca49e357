"""Asking before an action, doing it, its progress, and the audit log."""

from __future__ import annotations

import asyncio
import hmac
from functools import partial
from urllib.parse import parse_qsl

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ...queue.admin.audit_trail import AuditTrail
from ...values.options import MAX_NAME_LENGTH
from ...values.text import visible
from ..actions import ACTIONS, ActionTerms
from ..filters import Query
from ..runs import ActionRun, Runs, asked_ms, new_id
from ..site import Site, Visit, cut, number
from ..watcher import TIMEOUT_SECONDS

FORM_BYTES, FORM_SECONDS = 65_536, 10.0
AUDITED, MAX_AUDITED = 100, 1_000


class Acting:
    """The pages that change something."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._trail = AuditTrail(site.db, site.root, TIMEOUT_SECONDS)
        self._runs = Runs(site, self._trail)

    def ask(self, visit: Visit) -> Response:
        """Ask first: what would be done, and to how many."""
        name = visit.query.get("action", "")
        return _refused(visit, name) or self._asked(visit, name, ActionTerms.of(visit.query))

    def _asked(self, visit: Visit, name: str, terms: ActionTerms, again: bool = False) -> Response:
        count, whole = ACTIONS[name].count(self._site, terms)
        return visit.page(
            "ask.html",
            409 if again else 200,
            queue=terms.queue or None,
            name=name,
            action=ACTIONS[name],
            terms=terms.given(),
            count=count,
            whole=whole,
            run=new_id(),
            again=again,
        )

    async def act(self, request: Request) -> Response:
        """Begin an action that a form of the page before says."""
        body = b""
        try:
            async with asyncio.timeout(FORM_SECONDS):
                async for piece in request.stream():
                    body += piece
                    if len(body) > FORM_BYTES:
                        return PlainTextResponse("The form is too large.\n", 413)
        except TimeoutError:
            return PlainTextResponse("The form did not come.\n", 408, {"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=408)
        # Any bytes decode like this; what is not ASCII comes percent-encoded, and as UTF-8.
        form = dict(parse_qsl(body.decode("latin-1"), keep_blank_values=True))
        return await self._site.answering(partial(self._act, form))(request)

    def _act(self, form: Query, visit: Visit) -> Response:
        name = form.get("action", "")
        refused = _refused(visit, name)
        if refused is not None:
            return refused
        token = visit.request.scope["fdbqueue.form"]
        if not hmac.compare_digest(form.get("form", "").encode(), token.encode()):
            return PlainTextResponse("The form is not from these pages, or from before.\n", 403)
        terms, id = ActionTerms.of(form), form.get("run", "")
        moment = asked_ms(id)
        if moment is None:
            return self._asked(visit, name, terms, again=True)
        text = form.get("count", "")
        expected = int(text[:15]) if text.isascii() and text.isdecimal() else 0
        most = expected if ACTIONS[name].takes and form.get("whole") else None
        by = visible(visit.user.name)[:MAX_NAME_LENGTH]
        terms = replace(terms, until_ms=moment, by=by)
        if not self._runs.start(ActionRun(id, name, terms, visit.user, expected, most)):
            return PlainTextResponse("Too many actions are under way.\n", 503, {"retry-after": "5"})
        # Reloading what this leads to shows the action again, and does not repeat it.
        return RedirectResponse(visit.url("run", id=id), 303)

    def run(self, visit: Visit) -> Response:
        """How far an action has come."""
        run = self._runs.find(visit.query.get("id", ""))
        if run is None or run.user.name != visit.user.name:
            error = "there is no such action here: the audit log says what became of it"
            return visit.page("failed.html", 404, queue=None, error=error)
        return visit.page("run.html", queue=run.terms.queue or None, run=run)

    def audit(self, visit: Visit) -> Response:
        """What operators did, the newest first."""
        text = visit.query.get("before", "")
        try:
            before = bytes.fromhex(text) or None
        except ValueError:
            before = None
        limit = number(visit.query, "limit", AUDITED, MAX_AUDITED)
        lines, last = cut(self._trail.newest(limit + 1, before), limit)
        return visit.page(
            "audit.html",
            queue=None,
            lines=lines,
            before=text if before else "",
            following=last and last.stamp.hex(),
        )


def _refused(visit: Visit, name: str) -> Response | None:
    if not visit.may_act:
        return PlainTextResponse("You may look, and not act.\n", 403)
    return None if name in ACTIONS else PlainTextResponse("There is no such action.\n", 404)
