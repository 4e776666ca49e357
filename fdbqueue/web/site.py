"""What all pages share: the store, the watcher, the templates, and how a page is answered."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode

from anyio import CapacityLimiter, to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from ..errors import InvalidInput, NotFound, QueueError, QueueNotFound
from ..queue.keys.shared_limits import Limits
from ..queue.queue import Queue
from ..store.binding import FAILURES, fdb
from ..values.options import check_name
from ..values.text import duration, excerpt, visible
from .filters import Filter, Query
from .users import Role, User
from .watcher import TIMEOUT_SECONDS, Watcher

PAGE, MAX_PAGE = 50, 200

EXCERPT = 160
THREADS, FILTERS = 40, 4
"""How many pages are made at once, and how many of them with a filter."""
T = TypeVar("T")
Url: TypeAlias = Callable[..., str]
Answering: TypeAlias = Callable[[Request], Awaitable[Response]]
Values: TypeAlias = dict[str, Any]
"""What the template of a page shows."""
TABS = {
    "queue": ("Messages", "queue"),
    "dead": ("Dead letters", "dead_letters"),
    "consumers": ("Consumers", "consumers"),
    "subscriptions": ("Subscriptions", "subscriptions"),
    "keys": ("Keys", "keys"),
    "schedules": ("Schedules", "schedules"),
    "groups": ("Groups", "groups"),
    "streams": ("Plans and sinks", "streams"),
    "history": ("History", "history"),
}
"""The pages of a queue: their paths, what leads to them, and their templates."""


class Site:
    """The pages for the queues below one root of a store.

    actions: whether operators may act. name: what the pages call the store.
    """

    def __init__(self, db: fdb.Database, root: fdb.Subspace, *, name: str, actions: bool) -> None:
        self.db = db
        self.root = root
        self.name = name
        self.actions = actions
        self.watcher = Watcher(db, root)
        # Of its own: anyio's default is shared with the application that mounts the pages.
        self._threads = CapacityLimiter(THREADS)
        self._filters = CapacityLimiter(FILTERS)
        self.templates = Environment(
            loader=PackageLoader("fdbqueue.web"),
            autoescape=True,
            auto_reload=False,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., str]] = {
            "show": show,
            "excerpt": partial(excerpt, characters=EXCERPT),
            "when": when,
            "number": "{:,}".format,
            "rate": rate,
            "size": size,
            "duration": duration,
        }
        self.templates.filters |= filters
        self.tabs = TABS

    def queue(self, name: str) -> Queue[bytes]:
        """A handle for a queue, with a deadline for each of its operations."""
        return Queue(check_name(name), self.root).within(TIMEOUT_SECONDS)

    def limits(self) -> Limits:
        """The limits that the queues share, with a deadline for each operation."""
        return Limits(self.root, timeout=TIMEOUT_SECONDS)

    def answering(self, page: Callable[[Visit], Response]) -> Answering:
        """A page, in a thread of the pages. A failure is answered with a page that says so.

        Pages with a filter, which may take seconds, have a share of their own; those whose clients
        have gone while they waited for it are left out.
        """

        def answered(request: Request) -> Response:
            visit = Visit(self, request)
            try:
                return page(visit)
            except (InvalidInput, *FAILURES, QueueError) as error:
                status = 404 if isinstance(error, QueueNotFound | NotFound) else 503
                status = 400 if isinstance(error, InvalidInput) and status != 404 else status
                return visit.page("failed.html", status, error=str(error), queue=None)

        async def answer(request: Request) -> Response:
            if not Filter.given(request.query_params):
                return await self.in_thread(answered, request)
            async with self._filters:
                if await request.is_disconnected():
                    return Response(status_code=408)
                return await self.in_thread(answered, request)

        return answer

    async def in_thread(self, todo: Callable[..., T], *given: object) -> T:
        """Do something in a thread of the pages, which no other part of the process takes."""
        return await to_thread.run_sync(todo, *given, limiter=self._threads)


class Visit:
    """A request for a page: what it asks for, and how it is answered."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site, self.request, self.query = site, request, request.query_params
        self.db, self.user, self.url = site.db, user_of(request), link(request)
        self.name = self.query.get("queue", "")
        self.after = self.query.get("after") or None
        self.may_act = site.actions and self.user.role is Role.OPERATOR

    @property
    def queue(self) -> Queue[bytes]:
        """The queue that the page is about; raises ``InvalidArgument``."""
        return self.site.queue(self.name)

    @property
    def limit(self) -> int:
        """How many elements the page lists."""
        return number(self.query, "limit", PAGE, MAX_PAGE)

    def page(self, template: str, status: int = 200, **values: object) -> HTMLResponse:
        """Answer with a page."""
        given = {"queue": self.name or None, "after": self.after or ""}
        text = self.site.templates.get_template(template).render(
            site=self.site,
            url=self.url,
            here=template.removesuffix(".html"),
            user=self.user,
            may_act=self.may_act,
            form=self.request.scope["fdbqueue.form"],
            now_ms=round(1000 * time.time()),
            **(given | values),
        )
        return HTMLResponse(text, status)


def user_of(request: Request) -> User:
    """The user of a request that has passed the guard."""
    found: User = request.scope["fdbqueue.user"]
    return found


def link(request: Request) -> Url:
    """How pages name each other: below the place where they are mounted, with a query."""
    base = request.scope.get("root_path", "").rstrip("/")

    def url(path: str, **query: object) -> str:
        given = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return f"{base}/{path}" + (f"?{urlencode(given)}" if given else "")

    return url


def cut(found: list[T], limit: int) -> tuple[list[T], T | None]:
    """A page of what was found, and its last one if more follow."""
    return found[:limit], found[limit - 1] if len(found) > limit else None


def number(query: Query, name: str, default: int, most: int) -> int:
    """A number of a query, from 1 to ``most``; the default if it is none."""
    text = query.get(name, "")
    # Python converts no number of thousands of digits, and takes long for fewer.
    digits = text.lstrip("0")[:18] or "0"
    return min(most, max(1, int(digits))) if text.isascii() and text.isdecimal() else default


def show(value: Any) -> str:
    """A value as visible text."""
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def when(wall_ms: int) -> str:
    """Milliseconds of the wall clock as a time in UTC, to the second."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{wall_ms} ms"


def rate(value: float) -> str:
    """Messages per second."""
    return "0" if value < 0.05 else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def size(count: float) -> str:
    """Bytes, as a person says it."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
