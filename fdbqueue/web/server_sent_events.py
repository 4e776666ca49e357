"""Server-sent events: a page hears of changes, and a row of the overview comes with it.

What is new is rendered once for all viewers of the same page, by one task of theirs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import QueueError
from ..store.binding import FAILURES
from .pages.overview import Overview, selection
from .site import Site, link, user_of
from .watcher import QueueChange, Watcher

BEAT_SECONDS = 15.0
"""A sign of life, so that neither side keeps a connection that the other has lost."""
REST_SECONDS = 0.3
MAX_PAGES = 200
"""How many pages have a stream. One more takes the place of one of whoever has most of them."""
MAX_BEHIND = 8
"""How many events wait for a viewer that reads slowly; then it is told to fetch the page."""

News: TypeAlias = Callable[[frozenset[str] | None], object]
log = logging.getLogger("fdbqueue.web")


def event(name: str, data: object) -> bytes:
    """One event as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


CHANGED = event("changed", {})
END = b""


class Events:
    """The streams of events of a site."""

    def __init__(self, site: Site, overview: Overview) -> None:
        self._site = site
        self._overview = overview
        self._feeds: dict[tuple[str, ...], Feed] = {}
        self._pages: list[tuple[str, asyncio.Queue[bytes]]] = []
        """The pages that have a stream, with their viewer: a user, or an address."""
        self._ending = False

    def end(self) -> None:
        """End all streams, since the server stops; call it in the thread of the event loop."""
        self._ending = True
        for feed in self._feeds.values():
            feed.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Of one queue, or of all that the overview shows with the same query."""
        request = Request(scope)
        viewer = user_of(request).name or (request.client.host if request.client else "")
        if self._ending or not self._has_place(viewer):
            refused = PlainTextResponse("Too many pages are open.\n", 503, {"retry-after": "30"})
            await refused(scope, receive, send)
            return
        feed = self._feed(request)
        page = feed.join()
        place = viewer, page
        self._pages.append(place)
        try:
            answer = StreamingResponse(
                _stream(page, scope["fdbqueue.stays"]),
                media_type="text/event-stream",
                # nginx would hold events back until a buffer is full.
                headers={"x-accel-buffering": "no"},
            )
            await answer(scope, receive, send)
        finally:
            feed.leave(page)
            self._pages = [each for each in self._pages if each is not place]

    def _has_place(self, viewer: str) -> bool:
        """Whether there is a place for one more page; takes one from whoever has most if that is
        fair."""
        if len(self._pages) < MAX_PAGES:
            return True
        counts = Counter(each for each, _ in self._pages)
        most = max(counts, key=counts.__getitem__, default=viewer)
        # Taken from an equal it would only be asked for again: two viewers would push each other
        # out for ever.
        if counts[most] <= counts[viewer] + 1:
            return False
        taken = [each for each in self._pages if each[0] == most][-1]
        self._pages.remove(taken)
        _give(taken[1], END)
        return True

    def _feed(self, request: Request) -> Feed:
        """That of all viewers of this page. Rows are the same for all users."""
        query, url = request.query_params, link(request)
        queue = query.get("queue")
        wanted = selection(query)
        key = (url(""), *wanted.values()) if queue is None else (url(""), queue)
        if key not in self._feeds:
            self._feeds[key] = Feed(
                self._site.watcher,
                partial(self._overview.news, wanted, url),
                queue,
                ended=partial(self._forget, key),
            )
        return self._feeds[key]

    def _forget(self, key: tuple[str, ...], ended: Feed) -> None:
        if self._feeds.get(key) is ended:
            del self._feeds[key]


async def _stream(
    page: asyncio.Queue[bytes], stays: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """The events of a page, while its user stays one."""
    yield b"retry: 2000\n\n"
    while True:
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                found = await page.get()
        except TimeoutError:
            found = b": still here\n\n"
        # A stream may last for days: a user that was removed meanwhile must see no more.
        if found == END or not await stays():
            return
        yield found


class Feed:
    """What is new on one page, for all its viewers; a task works while there are any.

    news: the data of an event for the queues that have moved, or for all if it is given None.
    queue: whose page it is, if not the overview; it fetches itself whenever the queue has moved.
    """

    def __init__(
        self, watcher: Watcher, news: News, queue: str | None, ended: Callable[[Feed], object]
    ) -> None:
        self._watcher = watcher
        self._news = news
        self._queue = queue
        self._ended = ended
        self._viewers: set[asyncio.Queue[bytes]] = set()
        self._fresh: set[asyncio.Queue[bytes]] = set()
        self._stirred = asyncio.Event()
        self._moved: set[str] = set()
        self._everything = False
        self._task: asyncio.Task[None] | None = None

    def join(self) -> asyncio.Queue[bytes]:
        """The events of a new viewer. The first has everything: its page may be older."""
        viewer: asyncio.Queue[bytes] = asyncio.Queue(MAX_BEHIND)
        self._viewers.add(viewer)
        self._fresh.add(viewer)
        self._stirred.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return viewer

    def leave(self, viewer: asyncio.Queue[bytes]) -> None:
        """A viewer has gone."""
        self._viewers.discard(viewer)
        self._fresh.discard(viewer)
        if not self._viewers and self._task is not None:
            self._task.cancel()
            self._ended(self)

    def end(self) -> None:
        """End the streams of all viewers."""
        for viewer in self._viewers:
            _give(viewer, END)

    def _note(self, change: QueueChange) -> None:
        names = change.names if self._queue is None else change.names & {self._queue}
        self._moved |= names
        self._everything = self._everything or change.everything
        if names or change.everything:
            self._stirred.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        # The watcher has a thread of its own, and sets of this feed belong to the loop.
        leave = self._watcher.follow(lambda change: loop.call_soon_threadsafe(self._note, change))
        try:
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                await self._round()
                # What moves in the meantime goes into one event: a busy queue would otherwise be
                # rendered at each message.
                await asyncio.sleep(REST_SECONDS)
        except (*FAILURES, QueueError) as error:
            log.warning("no news for %d pages, which ask again: %s", len(self._viewers), error)
        finally:
            leave()
            self._ended(self)
            self.end()

    async def _round(self) -> None:
        fresh, moved, everything = self._fresh, frozenset(self._moved), self._everything
        known = self._viewers - fresh
        self._fresh, self._moved, self._everything = set(), set(), False
        if everything or self._queue is not None:
            for viewer in known | fresh:
                _give(viewer, CHANGED)
            return
        for viewers, names in ((fresh, None), (known, moved)):
            if viewers and (names is None or names):
                rows = event("rows", await run_in_threadpool(self._news, names))
                for viewer in viewers:
                    _give(viewer, rows)


def _give(viewer: asyncio.Queue[bytes], found: bytes) -> None:
    if viewer.full():
        # Dropped, since all of it is in the page that it is told to fetch.
        while not viewer.empty():
            viewer.get_nowait()
        # END is empty, and stays what it is: nothing comes behind it.
        found = found and CHANGED
    viewer.put_nowait(found)
