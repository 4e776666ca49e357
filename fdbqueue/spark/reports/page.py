"""A report as one HTML page with plots, without scripts or external resources.

Text from messages and consumers is escaped, and the page's policy forbids the browser to load or
run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from ...values.text import duration, visible
from .figures import Figures, QueueReport, moment, share

COLORS = {"enqueued": "#2f6fde", "delivered": "#e8833a", "done": "#2a9d6f", "dead": "#d2453f"}
WIDTH, HEIGHT = 720, 150


class Line(NamedTuple):
    """A line of a plot: its name, its color, its greatest value in words, and its SVG path."""

    name: str
    color: str
    most: str
    path: str


def page(report: Figures, title: str = "Delivery report") -> str:
    """The page. The same report always makes the same page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "duration": duration,
        "moment": moment,
        "number": lambda value: f"{value:,}",
        "share": share,
        "visible": visible,
    }
    text = resources.files(__package__).joinpath("report.html").read_text("utf-8")
    return environment.from_string(text).render(
        title=title,
        report=report,
        plots=[list(plots(report, queue)) for queue in report.queues],
        tile=_tile,
        size=(WIDTH, HEIGHT),
    )


def _tile(value: str, label: str) -> Markup:
    return Markup('<div class="tile"><b>{}</b><span>{}</span></div>').format(value, label)


def plots(report: Figures, queue: QueueReport) -> Iterator[tuple[str, list[Line]]]:
    """The plots of one queue over time: what each shows, and its lines."""
    assert report.since_ms is not None
    assert report.until_ms is not None
    assert report.span_ms is not None
    # The history covers the first and the last span only in part.
    covered = [
        min(report.until_ms, span.begin_ms + report.span_ms) - max(report.since_ms, span.begin_ms)
        for span in queue.spans
    ]
    seconds = [max(length, report.span_ms / 2) / 1000 for length in covered]
    rates = {
        name: [
            getattr(span, name) / length for span, length in zip(queue.spans, seconds, strict=True)
        ]
        for name in COLORS
    }
    most = max(max(each) for each in rates.values())
    yield (
        "Throughput, messages a second",
        [
            Line(name, COLORS[name], f"{max(each):,.1f}", _steps(each, most))
            for name, each in rates.items()
            if any(each)
        ],
    )
    ready = [span.ready for span in queue.spans]
    waits = [span.longest_wait_ms or 0 for span in queue.spans]
    longest = max(waits)
    yield (
        "Ready messages, and the longest wait of a delivery",
        [
            Line("ready", COLORS["enqueued"], f"{max(ready):,}", _steps(ready, max(ready))),
            Line("longest wait", COLORS["delivered"], duration(longest), _steps(waits, longest)),
        ],
    )


def _steps(values: Sequence[float], most: float) -> str:
    """Values as an SVG path of steps, from 0 at the bottom to ``most`` at the top."""
    each = [(n * WIDTH / len(values), HEIGHT * (1 - v / (most or 1))) for n, v in enumerate(values)]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in each)
    return f"M0 {each[0][1]:.1f}{steps}H{WIDTH}"
