"""What a worker answers to probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct, structs

from ...schema.consumers import Work
from ...store import world
from ...store.connection import Connection
from .loops import TURN_SECONDS, Loop
from .probe_server import Answer, text

SCRAPE_SECONDS = 5.0
"""How long a scrape waits for another one: scrapes may read the store, and must not pile up."""


class Probes(Struct, frozen=True):
    """Tells whether a worker must be started anew, and whether it takes messages.

    stopping: whether the worker has been told to stop.
    """

    loops: Sequence[Loop]
    connection: Connection
    stopping: Callable[[], bool]

    def dead(self, now: float) -> str | None:
        """Why the worker must be started anew; None if it lives.

        now: by ``world.monotonic``. Whoever waits for messages, for a handler or for a store that
        is away lives; so does a worker that stops, which it does in a limited time.
        """
        if self.stopping():
            return None
        silent = now - self.connection.asked_at
        if silent > TURN_SECONDS:
            return f"nothing has asked the store for {silent:,.0f} s"
        if not self.connection.usable:
            return None
        for loop in self.loops:
            # While the store was away loops rightly stood still: their time counts from its return.
            late = now - max(loop.turned_at, self.connection.since)
            if late > loop.patience and not loop.over:
                return f"the thread that {loop.does} has not come round for {late:,.0f} s"
        return None

    def unready(self, now: float) -> str | None:
        """Why the worker takes no messages; None if it takes them, as far as there are any."""
        if self.stopping():
            return "the worker is stopping"
        if not self.connection.usable:
            return "the store does not answer"
        for loop in self.loops:
            if not loop.takes or loop.over:
                continue
            if loop.problem is not None:
                return f"the thread that {loop.does} cannot: {loop.problem}"
            if loop.took_at < self.connection.since:
                return f"the thread that {loop.does} has not done so yet"
        return self.dead(now)


def routes(
    probes: Probes, metrics: Any, doing: Callable[[], Sequence[Work]]
) -> Mapping[str, Callable[[], Answer]]:
    """The answers of a worker, by their paths.

    metrics: what it counts by, if anything. doing: what it does.
    """

    def live() -> Answer:
        return _answer("live", probes.dead(world.monotonic()))

    def ready() -> Answer:
        return _answer("ready", probes.unready(world.monotonic()))

    def uncounted() -> Answer:
        problem = "the worker counts nothing: give it metrics=WorkerMetrics()"
        return text(HTTPStatus.NOT_FOUND, problem)

    def status() -> Answer:
        body = msgspec.json.encode([structs.asdict(each) | _running(each) for each in doing()])
        return Answer(HTTPStatus.OK, body, "application/json")

    counts = hasattr(metrics, "exposition")
    return {
        "/livez": live,
        "/readyz": ready,
        "/status": status,
        "/metrics": scrapes(metrics.exposition) if counts else uncounted,
    }


def _running(work: Work) -> dict[str, Any]:
    return {"running": [structs.asdict(each) for each in work.running]}


def scrapes(exposition: Callable[[], tuple[str, bytes]]) -> Callable[[], Answer]:
    """Answers scrapes, one after the other. exposition: the content type and the text of one."""
    scraping = world.Lock()

    def answer() -> Answer:
        if not scraping.acquire(timeout=SCRAPE_SECONDS):
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "another scrape is under way")
        try:
            content_type, body = exposition()
        finally:
            scraping.release()
        return Answer(HTTPStatus.OK, body, content_type)

    return answer


def _answer(good: str, problem: str | None) -> Answer:
    if problem is None:
        return text(HTTPStatus.OK, good)
    return text(HTTPStatus.SERVICE_UNAVAILABLE, f"not {good}: {problem}")
