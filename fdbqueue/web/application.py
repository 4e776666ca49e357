"""The web pages as an application of ASGI, to serve or to mount in another one."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection
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
from .pages.actions import Acting
from .pages.consumers import consumers
from .pages.dead_letters import dead_letters
from .pages.find import find
from .pages.groups import groups
from .pages.history import history
from .pages.message import message, payload
from .pages.message_keys import keys
from .pages.overview import Overview
from .pages.queue import queue
from .pages.schedules import schedules
from .pages.shared_limits import limits
from .pages.streams import streams
from .pages.subscriptions import subscriptions
from .server_sent_events import Events
from .site import Site
from .users import Role, Users

PAGES: dict[str, Callable[[Site, Request], Response]] = {
    "queue": queue,
    "message": message,
    "payload": payload,
    "find": find,
    "dead": dead_letters,
    "consumers": consumers,
    "subscriptions": subscriptions,
    "keys": keys,
    "schedules": schedules,
    "groups": groups,
    "limits": limits,
    "streams": streams,
    "history": history,
}

STATIC = {
    "icon.svg": "image/svg+xml",
    "live.js": "text/javascript",
    "style.css": "text/css",
}


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
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
        *(Route(f"/{path}", site.answering(partial(page, site))) for path, page in PAGES.items()),
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
