"""The web pages as an application of ASGI, to serve or to mount in another one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from functools import partial
from importlib import resources

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..schema.keys import DEFAULT_ROOT
from ..store.binding import describe, fdb
from ..store.hosts import LOOPBACK
from .guard import Authenticate, Guard
from .pages import messages, parts
from .pages.actions import Acting
from .pages.history import history
from .pages.overview import Overview
from .server_sent_events import Events
from .site import TABS, Answering, Site, Values, Visit
from .users import Role, Users

PAGES: dict[str, Callable[[Visit], Values | Response]] = {
    "queue": messages.queue,
    "message": messages.message,
    "payload": messages.payload,
    "find": messages.find,
    "dead": messages.dead,
    "history": history,
    **{
        each.__name__: each
        for each in (
            *(parts.consumers, parts.subscriptions, parts.keys, parts.schedules),
            *(parts.groups, parts.limits, parts.streams),
        )
    },
}

STATIC = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript",
    "style.css": "text/css",
}


def _page(path: str, visit: Visit) -> Response:
    found = PAGES[path](visit)
    _, name = TABS.get(path, ("", path))
    return found if isinstance(found, Response) else visit.page(f"{name}.html", **found)


def _static(name: str) -> Answering:
    """A file of the package, from memory: it waits for no thread."""
    content = resources.files("fdbqueue.web").joinpath("static", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=STATIC[name])

    return answer


def application(
    db: fdb.Database,
    *,
    root: fdb.Subspace = DEFAULT_ROOT,
    hosts: Collection[str] | None = LOOPBACK,
    users: Users | None = None,
    authenticate: Authenticate | None = None,
    allow_actions: bool = False,
    secret: bytes | None = None,
    name: str | None = None,
) -> Starlette:
    """Pages about the queues below ``root``: serve them with uvicorn, or mount them in Starlette or
    FastAPI.

    hosts: the host names that they are served under, without ports; None if the application that
        mounts them, or a proxy, checks the ``Host`` of requests.
    users: who may see them; None for everybody who reaches them.
    authenticate: instead of ``users``, a function that tells the ``User`` of a request, or None; it
        may be async.
    allow_actions: whether operators may act; without users, everybody is one then.
    secret: signs forms; processes that serve the same pages share it. By default a random one.
    name: what the pages call the store.

    It reads the store only for requests, and while a page is open. Streams of events last as long
    as their pages: a server that waits for them as it stops calls ``state.end_streams()`` first, in
    the thread of its event loop.
    """
    site = Site(db, root, name=name or str(describe(db)), actions=allow_actions)
    overview, acting = Overview(site), Acting(site)
    events = Events(site, overview)
    routes = [
        Route("/", site.answering(overview)),
        *(Route(f"/{path}", site.answering(partial(_page, path))) for path in PAGES),
        Route("/ask", site.answering(acting.ask)),
        Route("/act", acting.act, methods=["POST"]),
        Route("/run", site.answering(acting.run)),
        Route("/audit", site.answering(acting.audit)),
        Route("/events", events, methods=["GET"]),
        *(Route(f"/static/{name}", _static(name)) for name in STATIC),
    ]
    guard = Middleware(
        Guard,
        hosts=hosts,
        users=users,
        authenticate=authenticate,
        anybody=Role.OPERATOR if allow_actions else Role.VIEWER,
        secret=secrets.token_bytes(32) if secret is None else secret,
    )
    app = Starlette(routes=routes, middleware=[guard])
    app.state.end_streams = events.end
    return app
