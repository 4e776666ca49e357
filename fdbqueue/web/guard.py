"""What every request passes: which host it names, where it comes from, and whose it is.

- A page of another site may make a browser send requests here, under a name that it controls (DNS
  rebinding). So the ``Host`` must be one that the pages are served under.
- Only a form of these pages may change anything. So a request that is not a plain read must come
  from the same origin, and has a token that only a page for the same browser and user contains.
- A page contains what others have enqueued. So no script or style but those of this package runs,
  whatever a page contains, and no other site can frame it.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from typing import TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InvalidArgument
from ..store.hosts import LOOPBACK, host_name
from ..values.text import visible
from .users import TRY_SECONDS, Attempts, Role, User, Users, credentials

READS = ("GET", "HEAD")
COOKIE = "fdbqueue_form"
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
Authenticate: TypeAlias = Callable[[Request], User | Awaitable[User | None] | None]
"""Tells whose a request is; None if nobody's that may see the pages. It may be async."""

log = logging.getLogger("fdbqueue.web")


class Guard:
    """Lets a request through to the pages, or answers it.

    hosts: the names that the pages are served under, without ports; None for any, if whoever mounts
        the pages checks them. users: who may see them; None for everybody. authenticate: asks the
        application that mounts the pages instead. anybody: the role of everybody.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        users: Users | None,
        authenticate: Authenticate | None,
        anybody: Role,
        secret: bytes,
    ) -> None:
        self._app = app
        self._hosts = None if hosts is None else {host.lower().strip("[]") for host in hosts}
        self._users = users
        self._authenticate = authenticate
        self._anybody = anybody
        self._secret = secret
        self._attempts = Attempts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookie = _cookie(headers)
        fresh = cookie or secrets.token_urlsafe(32)

        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                sent = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    sent[name] = value
                sent.setdefault("cache-control", "no-store")
                if fresh != cookie:
                    path = scope.get("root_path") or "/"
                    secure = "; Secure" if scope.get("scheme") == "https" else ""
                    sent.append(
                        "set-cookie",
                        f"{COOKIE}={fresh}; Path={path}; HttpOnly; SameSite=Strict{secure}",
                    )
            await send(message)

        try:
            answer = self._refused(scope, headers) or await self._admitted(scope, headers, fresh)
            await (answer or self._app)(scope, receive, guarded)
        except Exception as error:
            # Once the head is sent no other answer can be given: the connection breaks, which the
            # client notices.
            if not started:
                told = str(error) if isinstance(error, InvalidArgument) else "Internal error."
                await PlainTextResponse(f"{visible(told)}\n", 500)(scope, receive, guarded)
            raise

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return PlainTextResponse(
                "The pages are not served under this name: start them with --hostname NAME.\n",
                421,
            )
        if scope["method"] not in (*READS, "POST"):
            return PlainTextResponse("Only GET and POST.\n", 405, {"allow": "GET, HEAD, POST"})
        site = headers.get("sec-fetch-site")
        if scope["method"] == "POST":
            if not self._is_own(site, headers.get("origin"), host):
                return PlainTextResponse("This form is not from these pages.\n", 403)
        # A link from another site may lead here; its scripts and images may not ask with this
        # browser's password.
        elif site == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Another site asks for this.\n", 403)
        return None

    def _is_own(self, site: str | None, origin: str | None, host: str) -> bool:
        """Whether a form comes from these pages. Browsers say so since 2023, to servers with TLS
        and on this machine; otherwise by the origin, which is the ``Host``, or a name that the
        pages are served under where a proxy has changed that one."""
        if site is not None:
            return site in ("same-origin", "none")
        # No browser leaves it out of a form: it is a program, which no other site can steer.
        if origin is None:
            return True
        place = origin.partition("://")[2].lower()
        names = (self._hosts or set()) - {*LOOPBACK}
        return place == host.lower() or host_name(place) in names

    async def _admitted(self, scope: Scope, headers: Headers, cookie: str) -> Response | None:
        """Note whose the request is; if nobody's, the answer."""
        given = credentials(headers.get("authorization", ""))
        # The address, and the name, that a secret came with.
        whose = None if given is None else ((scope.get("client") or ("",))[0], given[0] or "")
        # Before the secret is looked at: checking one is meant to be slow.
        if whose is not None and self._attempts.over(whose):
            wait = {"retry-after": f"{TRY_SECONDS:.0f}"}
            return PlainTextResponse("Too many wrong passwords: wait a minute.\n", 429, wait)
        user = await self._user(scope, headers)
        if user is None:
            if whose is not None and self._users is not None:
                self._attempts.wrong(whose)
                log.warning("a wrong secret for %s from %s", visible(whose[1][:80]), whose[0])
            challenge = {"www-authenticate": 'Basic realm="fdbqueue", charset="UTF-8"'}
            return PlainTextResponse("Give a name and a password, or a token.\n", 401, challenge)

        async def stays() -> bool:
            return await self._user(scope, headers) == user

        scope["fdbqueue.user"] = user
        scope["fdbqueue.stays"] = stays
        scope["fdbqueue.form"] = self._form(cookie, user)
        return None

    async def _user(self, scope: Scope, headers: Headers) -> User | None:
        if self._authenticate is not None:
            found: object = self._authenticate(Request(scope))
            if inspect.isawaitable(found):
                found = await found
            if found is None or isinstance(found, User):
                return found
            raise InvalidArgument(
                argument="authenticate", value=found, problem="must return a User, or None"
            )
        if self._users is None:
            return User("", self._anybody)
        return self._users.of(headers.get("authorization", ""))

    def _form(self, cookie: str, user: User) -> str:
        # The role, too: a form that an operator opened is void once the operator is none.
        text = f"{cookie}\0{user.name}\0{user.role.value}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _cookie(headers: Headers) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    # A short one was not made here: somebody may have set it to know the token.
    return found.value if found is not None and len(found.value) >= 32 else None
