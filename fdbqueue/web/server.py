"""Serves the pages with uvicorn, and bears clients that mean ill.

Whoever reaches the port may open connections, before any password. So a connection that has sent no
whole request has a deadline, and makes room for a newer one when there are too many; a client that
does not take its answer is cut off; and what clients do fills no disk with log lines.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

STOP_SECONDS = 2
MAX_CONNECTIONS = 400
REQUEST_SECONDS = 10.0
"""How long the head of a request may take, from the connection or the answer before."""
TAKE_SECONDS = 30.0
"""How long a client may take none of an answer."""
LOG_LINES, LOG_SECONDS = 10, 60.0
"""How many lines of one kind are logged in a time."""
_BACKLOG = 64  # also how many connections asyncio accepts before it makes the first of them


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 picks a free one. Raises ``OSError``.

    It names its protocol, because asyncio sets TCP_NODELAY on no other: answers on a kept
    connection would wait 40 ms for the client's acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def configuration(app: ASGIApp, root_path: str = "") -> uvicorn.Config:
    """How uvicorn serves the pages. root_path: what a proxy removes from the paths of requests.

    Of what a proxy says of its client, uvicorn believes one on this machine, or those that
    FORWARDED_ALLOW_IPS names.
    """
    return uvicorn.Config(
        app,
        root_path=root_path,
        http=HttpConnection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


class HttpConnection(H11Protocol):
    """A connection. It waits while no request is under way, for one that is whole.

    A head has a deadline here, and what follows it, as a form, from who reads it.
    """

    waits_since: float | None = None
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Half of the descriptors are for the store and the files of the pages.
        if len(self.connections) > min(MAX_CONNECTIONS, files // 2):
            waiting = [each for each in self.connections if isinstance(each, HttpConnection)]
            waiting = [each for each in waiting if each.waits_since is not None]
            # Whoever has sent nothing for longest: a client that opens connections in vain loses
            # its own first.
            min(waiting, key=lambda each: each.waits_since or 0.0).cut()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._late, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKE_SECONDS, self.cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def cut(self) -> None:
        """End it, whatever it is doing."""
        self.connections.discard(self)
        # Not closed: a close waits until the client has taken the rest, which it never may.
        self.transport.abort()

    def _wait(self) -> None:
        """Begin to wait, or end it, as a request is under way or not."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        if under_way and not self.cycle.more_body:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = time.monotonic()
        if under_way and self._late is not None:
            self._late.cancel()
            self._late = None
        elif not under_way and self._late is None:
            self._late = self.loop.call_later(REQUEST_SECONDS, self.cut)


class Sparse(logging.Filter):
    """Lets ``LOG_LINES`` of one kind through in ``LOG_SECONDS``, and then says how many it kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._until: dict[str, float] = {}
        self._count: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # The template, not the text: lines that differ only in a name are of one kind.
        kind, now = str(record.msg), self._clock()
        if now >= self._until.get(kind, 0.0):
            kept = self._count.get(kind, 0) - LOG_LINES
            self._until[kind], self._count[kind] = now + LOG_SECONDS, 0
            if kept > 0:
                record.msg, record.args = f"{record.getMessage()} ({kept:,} more before)", ()
        self._count[kind] += 1
        return self._count[kind] <= LOG_LINES


def bound_log() -> None:
    """Bound the lines that clients can cause, in a process that only serves the pages."""
    sparse = Sparse()
    for name in ("asyncio", "uvicorn.error", "fdbqueue.web"):
        logging.getLogger(name).addFilter(sparse)
