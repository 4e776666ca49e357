"""All queues: how many messages are where, rates, and how long the oldest one waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from starlette.responses import Response

from ...values.model import Depth
from ..filters import Query
from ..site import Site, Url, Visit, number
from ..watcher import QueueView, QueueViews, Sample

T = TypeVar("T")

PAGE, MAX_PAGE = 100, 1_000
WIDTH, HEIGHT, SECONDS = 100, 20, 300.0
"""Of a sparkline."""
COLUMNS = {
    "name": "Queue",
    "ready": "Ready",
    "waiting": "Waiting",
    "retrying": "Retrying",
    "scheduled": "Scheduled",
    "leased": "Leased",
    "dead": "Dead",
    "in": "In/s",
    "out": "Out/s",
}


class Shown(Struct, frozen=True):
    """The queues of one page. total: how many there are, with all pages."""

    views: Sequence[QueueView]
    total: int
    page: int
    pages: int


class Overview:
    """The page of all queues, and its rows."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._made_of: QueueViews | None = None
        self._made: dict[Hashable, Any] = {}
        self._rows: dict[tuple[str, str], tuple[QueueView, int | None, str]] = {}

    def __call__(self, visit: Visit) -> Response:
        look, query = self._site.watcher.look(), visit.query
        shown = self._selected(look, selection(query))
        ages = self._site.watcher.ages(shown.views)
        return visit.page(
            "overview.html",
            rows=[self._row(visit.url, view, ages.get(view.name)) for view in shown.views],
            shown=shown,
            look=look,
            totals=self._totals(look),
            contains=query.get("contains", ""),
            sort=_sort(query),
            limit=query.get("limit", ""),
            queue=None,
        )

    def news(self, query: Query, url: Url, moved: frozenset[str] | None) -> dict[str, object]:
        """The rows of those queues on one page that have moved, and the totals.

        query, url: a selection, and how the page names others. moved: None for all.
        """
        look = self._site.watcher.look()
        views = self._selected(look, query).views
        views = [view for view in views if moved is None or view.name in moved]
        ages = self._site.watcher.ages(views)
        return {
            "rows": {each.name: self._row(url, each, ages.get(each.name)) for each in views},
            "totals": self._totals(look),
        }

    def _selected(self, look: QueueViews, query: Query) -> Shown:
        """What ``select`` chooses, computed once for all viewers of the same page."""
        return self._once(look, (*query.values(),), lambda: select(look, query))

    def _once(self, look: QueueViews, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if self._made_of is not look:
                self._made_of, self._made = look, {}
            made = self._made
        if key not in made:
            made[key] = make()
        found: T = made[key]
        return found

    def _totals(self, look: QueueViews) -> str:
        """The totals, as they are shown."""
        return self._once(look, "totals of all", lambda: self._render_totals(look))

    def _render_totals(self, look: QueueViews) -> str:
        template = self._site.templates.get_template("totals.html")
        return template.render(
            depth=Depth.total(view.depth for view in look.views.values()),
            count=len(look.views),
            look=look,
        )

    def _row(self, url: Url, view: QueueView, since_ms: int | None) -> str:
        """A row, made once for all viewers."""
        key = url(""), view.name
        known = self._rows.get(key)
        if known is not None and known[0] is view and known[1] == since_ms:
            return known[2]
        text = self._site.templates.get_template("row.html").render(
            view=view,
            depth=view.depth,
            since_ms=since_ms,
            path=_sparkline(view.samples, time.monotonic()),
            url=url,
        )
        with self._lock:
            if len(self._rows) > 10 * MAX_PAGE:
                self._rows.clear()
            self._rows[key] = view, since_ms, text
        return text


def selection(query: Query) -> dict[str, str]:
    """What of a query says which queues a page shows."""
    return {name: query.get(name, "") for name in ("contains", "sort", "limit", "page")}


def select(look: QueueViews, query: Query) -> Shown:
    """The queues of a look that a query asks for, in order."""
    part = query.get("contains", "").lower()
    views = [view for name, view in look.views.items() if part in name.lower()]
    sort = _sort(query)
    if sort != "name":
        views.sort(key=lambda view: -_value(view, sort))
    size = number(query, "limit", PAGE, MAX_PAGE)
    pages = max(1, -(-len(views) // size))
    page = number(query, "page", 1, pages)
    return Shown(views[(page - 1) * size : page * size], len(views), page, pages)


def _sort(query: Query) -> str:
    wanted = query.get("sort", "name")
    return wanted if wanted in COLUMNS else "name"


def _value(view: QueueView, column: str) -> float:
    rates = {"in": view.rate_in, "out": view.rate_out}
    return rates[column] if column in rates else float(getattr(view.depth, column))


def _sparkline(samples: Sequence[Sample], now: float) -> str:
    """How many messages were ready in the last minutes, as the path of an SVG: steps from one
    sample to the next, the newest at the right; empty before the second."""
    if len(samples) < 2:
        return ""
    top = max(1, *(each.ready for each in samples))
    begin = now - SECONDS
    points = []
    for each in samples:
        x = max(0.0, (each.at - begin) / SECONDS * WIDTH)
        y = HEIGHT - 1 - (HEIGHT - 2) * each.ready / top
        points.append((x, y))
    steps = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    steps += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
    return "".join([*steps, f"H{WIDTH}"])
