"""A report as one HTML page with plots, without scripts or external resources.

Text from messages and consumers is escaped, and the page's policy forbids the browser to load or
run anything.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import jinja2
import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ...values.text import duration, visible
from .figures import Figures, LevelFigures, Percentiles, QueueReport, moment, share

BLUE, ORANGE, GREEN, RED, GREY = "#2f6fde", "#e8833a", "#2a9d6f", "#d2453f", "#8a94a6"
MOST_SHOWN = 16
"""Most levels or consumers in a plot."""
MOST_LETTERS = 28
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "path",
    # No date, and a fixed salt: the same report makes the same page.
    "svg.hashsalt": "fdbqueue",
    # Names of consumers may contain dollar signs.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#c9d0da",
    "axes.labelcolor": "#4a5565",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": "#1f2937",
    "grid.color": "#e8ecf1",
    "xtick.color": "#4a5565",
    "ytick.color": "#4a5565",
    "legend.frameon": False,
    "legend.fontsize": 8,
}


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
        pictures=[pictures(report, queue) for queue in report.queues],
        tile=_tile,
    )


def _tile(value: str, label: str) -> Markup:
    return Markup('<div class="tile"><b>{}</b><span>{}</span></div>').format(value, label)


def pictures(report: Figures, queue: QueueReport) -> list[tuple[str, str]]:
    """The plots of one queue: a description of each, and a ``data:`` URL."""
    assert report.since_ms is not None
    assert report.until_ms is not None
    assert report.span_ms is not None
    throughput = _throughput(queue, report.span_ms, report.since_ms, report.until_ms)
    made = [
        ("Throughput over time", throughput),
        ("Ready messages and the longest wait over time", _backlog(queue, report.span_ms)),
        ("Waiting and service times by level", _times(queue)),
        ("Deliveries by consumer", _consumers(queue)),
    ]
    return [(words, picture) for words, picture in made if picture]


def _drawn(draw: Callable[[Axes], None], height: float) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(out.getvalue()).decode()}"


def _moments(queue: QueueReport) -> list[Any]:
    # Any: matplotlib's types do not take a datetime.
    return [datetime.fromtimestamp(span.begin_ms / 1000, UTC) for span in queue.spans]


def _time_axis(axes: Axes, moments: Sequence[Any], span_ms: int) -> None:
    # Else an axis with one moment would span years.
    axes.set_xlim(moments[0], moments[-1] + timedelta(milliseconds=span_ms))
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.grid(axis="x", visible=False)


def _throughput(queue: QueueReport, span_ms: int, since_ms: int, until_ms: int) -> str:
    lines = [("enqueued", BLUE), ("delivered", ORANGE), ("done", GREEN), ("dead", RED)]

    def draw(axes: Axes) -> None:
        # The history covers the first and the last span only in part.
        lengths = [
            min(until_ms, span.begin_ms + span_ms) - max(since_ms, span.begin_ms)
            for span in queue.spans
        ]
        full = [n for n, length in enumerate(lengths) if length >= span_ms / 2]
        full = full if len(full) > 1 else list(range(len(lengths)))
        moments = [_moments(queue)[n] for n in full]
        for name, color in lines:
            rates = [
                getattr(queue.spans[n], name) * 1000 / max(lengths[n], span_ms / 2) for n in full
            ]
            if any(rates):
                axes.step(moments, rates, where="post", color=color, label=name, linewidth=1.5)
        axes.set_title("Throughput, messages a second")
        axes.set_ylim(bottom=0)
        axes.legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 0.98))
        _time_axis(axes, moments, span_ms)

    return _drawn(draw, 2.5)


def _backlog(queue: QueueReport, span_ms: int) -> str:
    def draw(axes: Axes) -> None:
        moments = _moments(queue)
        ready = [span.ready for span in queue.spans]
        axes.fill_between(moments, ready, step="post", color=BLUE, alpha=0.18, linewidth=0)
        axes.step(moments, ready, where="post", color=BLUE, linewidth=1.2)
        axes.set_title("Ready messages, and the longest wait of a delivery")
        axes.set_ylabel("ready")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        _time_axis(axes, moments, span_ms)
        waits = [
            float("nan") if span.longest_wait_ms is None else span.longest_wait_ms
            for span in queue.spans
        ]
        if any(span.longest_wait_ms is not None for span in queue.spans):
            other = axes.twinx()
            other.plot(moments, waits, color=ORANGE, linewidth=1.2, marker=".", markersize=3)
            other.set_ylabel("longest wait", color=ORANGE)
            other.set_ylim(bottom=0)
            other.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 3, 6, 10]))
            other.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
            other.grid(visible=False)
            other.spines["right"].set_visible(True)

    return _drawn(draw, 2.5)


def _times(queue: QueueReport) -> str:
    levels = [one for one in queue.levels if one.waiting.count or one.service.count]
    if not levels:
        return ""
    levels = levels[:MOST_SHOWN]

    def draw(axes: Axes) -> None:
        _ranges(axes, levels, lambda one: one.waiting, 0.17, BLUE, "waiting")
        _ranges(axes, levels, lambda one: one.service, -0.17, ORANGE, "service")
        axes.set_yticks(range(len(levels)), [f"level {one.level}" for one in levels])
        axes.set_ylim(len(levels) - 0.4, -0.6)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=10))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="y", visible=False)
        axes.set_title("Waiting and service times: p50 (dot), p95 (bar), p99 (line)")
        axes.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1))

    return _drawn(draw, 0.9 + 0.42 * len(levels))


def _ranges(
    axes: Axes,
    levels: Sequence[LevelFigures],
    which: Callable[[LevelFigures], Percentiles],
    offset: float,
    color: str,
    label: str,
) -> None:
    for n, level in enumerate(levels):
        times = which(level)
        if times.p50 is None or times.p95 is None or times.p99 is None:
            continue
        # A logarithmic axis has no zero.
        p50, p95, p99 = (max(1, value) for value in (times.p50, times.p95, times.p99))
        at = n - offset
        axes.plot([p50, p99], [at, at], color=color, linewidth=1.2)
        axes.plot([p50, p95], [at, at], color=color, linewidth=5, alpha=0.45)
        axes.plot([p50], [at], "o", color=color, markersize=5, label=label if n == 0 else None)


def _consumers(queue: QueueReport) -> str:
    shown = queue.consumers[:MOST_SHOWN]
    if not shown:
        return ""

    def draw(axes: Axes) -> None:
        names = [plain(one.consumer or "(unnamed)") for one in shown]
        places = range(len(shown))
        done = [one.done for one in shown]
        failed = [one.failed for one in shown]
        others = [max(0, one.delivered - one.done - one.failed) for one in shown]
        left = [0] * len(shown)
        for counts, color, label in (
            (done, GREEN, "done"),
            (failed, RED, "failed or came back"),
            (others, GREY, "open"),
        ):
            if any(counts):
                axes.barh(places, counts, 0.62, left=left, color=color, label=label)
                left = [a + b for a, b in zip(left, counts, strict=True)]
        axes.set_yticks(places, names)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_title("Deliveries by consumer")
        axes.legend(ncols=3, loc="lower right", bbox_to_anchor=(1, 1))

    return _drawn(draw, 0.9 + 0.28 * len(shown))


def plain(name: str) -> str:
    """A name in ASCII, which every font has."""
    text = visible(name).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 3] + "..."
