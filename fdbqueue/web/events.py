"""Server-sent events: a page hears of changes, and a row of the overview comes with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from .pages.overview import Overview
from .site import Site
from .watcher import Change

BEAT_SECONDS = 15.0
"""A sign of life, so that neither side keeps a connection that the other has lost."""
REST_SECONDS = 0.3
MAX_VIEWERS = 200


class Events:
    """The streams of events of a site."""

    def __init__(self, site: Site, overview: Overview) -> None:
        self._site = site
        self._overview = overview
        self._streams = 0

    async def __call__(self, request: Request) -> Response:
        """Of one queue, or of all that the overview shows with the same query."""
        if self._streams >= MAX_VIEWERS:
            return PlainTextResponse("Too many pages are open.\n", 503, {"retry-after": "30"})
        return StreamingResponse(
            self._stream(request),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        queue = request.query_params.get("queue")
        loop, stirred = asyncio.get_running_loop(), asyncio.Event()
        names: set[str] = set()
        everything = False
        first = True  # the page may be older than the stream
        stirred.set()

        def note(change: Change) -> None:
            nonlocal everything
            names.update(change.names if queue is None else change.names & {queue})
            everything = everything or change.everything
            if everything or names:
                stirred.set()

        self._streams += 1
        leave = self._site.watcher.follow(lambda change: loop.call_soon_threadsafe(note, change))
        try:
            yield "retry: 2000\n\n"
            while True:
                try:
                    await asyncio.wait_for(stirred.wait(), BEAT_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                stirred.clear()
                moved, changed = None if first else frozenset(names), everything
                names.clear()
                everything = first = False
                if changed or queue is not None:
                    yield event("changed", {})
                else:
                    news = await run_in_threadpool(self._overview.news, request, moved)
                    yield event("rows", news)
                await asyncio.sleep(REST_SECONDS)
        finally:
            self._streams -= 1
            leave()


def event(name: str, data: object) -> str:
    """One event as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
