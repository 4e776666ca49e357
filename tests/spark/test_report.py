"""The report on delivery history: its figures are those of a plain model, its page is harmless."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fdbqueue
import fdbqueue.spark
from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.cli.main import run
from fdbqueue.spark.reports import figures, page
from fdbqueue.values.model import Event
from fdbqueue.values.states import ENDS, TRANSITIONS, State
from fdbqueue.web import report as web

from .histories import NOON_MS, Line, identity, lived, table, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from fdbqueue.spark.reports.report import Report, span_width_ms, summarize

EDGES = {edge.name: edge for edge in TRANSITIONS}
RETURNED = ("release", "defer", "reclaim")


# -- the model --------------------------------------------------------------------------------


def rank(times: list[int], part: float) -> int:
    return sorted(times)[math.ceil(part * len(times)) - 1]


def percentiles(times: Iterable[int | None]) -> figures.Percentiles:
    known = [time for time in times if time is not None]
    if not known:
        return figures.Percentiles(0, None, None, None)
    return figures.Percentiles(len(known), *(rank(known, part) for part in (0.5, 0.95, 0.99)))


class Told:
    """An event with what its message had gone through, by the definitions in docs/spark.md."""

    def __init__(self, line: Line, before: list[Line]) -> None:
        self.line = line
        self.edge = EDGES[line.transition]
        previous = before[-1] if before else None
        self.takes = self.edge.name in ("lease", "dequeue")
        self.again = self.takes and any(one.transition in ("lease", "dequeue") for one in before)
        self.done = self.edge.target is State.DONE
        self.wait = self.service = self.whole = None
        if self.takes and previous and EDGES[previous.transition].target is State.READY:
            self.wait = max(0, line.at_ms - previous.at_ms)
        if self.edge.name == "ack" and previous and previous.transition == "lease":
            self.service = max(0, line.at_ms - previous.at_ms)
        born = [one.at_ms for one in [*before, line] if EDGES[one.transition].source is None]
        self.born = min(born) if born else None
        if self.done and self.born is not None:
            self.whole = max(0, line.at_ms - self.born)


def counts(told: Sequence[Told]) -> dict[str, int]:
    def many(wanted: Callable[[Told], object]) -> int:
        return sum(bool(wanted(one)) for one in told)

    return {
        "enqueued": many(lambda one: one.edge.source is None),
        "delivered": many(lambda one: one.takes),
        "redelivered": many(lambda one: one.again),
        "done": many(lambda one: one.done),
        "returned": many(lambda one: one.edge.name in RETURNED),
        "dead": many(lambda one: one.edge.target is State.DEAD),
        "expired": many(lambda one: one.edge.target is State.EXPIRED),
        "purged": many(lambda one: one.edge.target is State.PURGED),
    }


def level_figures(level: int | None, told: Sequence[Told]) -> figures.LevelFigures:
    return figures.LevelFigures(
        level=level,
        **counts(told),
        waiting=percentiles(one.wait for one in told),
        service=percentiles(one.service for one in told),
        whole=percentiles(one.whole for one in told),
    )


def spans(told: Sequence[Told], width: int) -> tuple[figures.Span, ...]:
    grouped = defaultdict(list)
    for one in told:
        grouped[one.line.at_ms // width * width].append(one)
    made, ready = [], 0
    for begin in range(min(grouped), max(grouped) + 1, width):
        inside = grouped[begin]
        ready += sum(one.edge.target is State.READY for one in inside)
        ready -= sum(one.edge.source is State.READY for one in inside)
        waits = [one.wait for one in inside if one.wait is not None]
        made.append(
            figures.Span(
                begin_ms=begin,
                **counts(inside),
                ready=ready,
                waiting=percentiles(waits),
                longest_wait_ms=max(waits, default=None),
            )
        )
    return tuple(made)


def consumers(
    told: Sequence[Told],
) -> tuple[tuple[figures.ConsumerFigures, ...], figures.Balance | None]:
    grouped = defaultdict(list)
    for one in told:
        grouped[one.line.consumer].append(one)
    made = [
        figures.ConsumerFigures(
            name,
            delivered=counts(mine)["delivered"],
            done=counts(mine)["done"],
            failed=sum(one.edge.name in (*RETURNED, "dead-letter", "drop") for one in mine),
            service=percentiles(one.service for one in mine),
        )
        for name, mine in grouped.items()
    ]
    made = [one for one in made if one.delivered]
    made.sort(key=lambda one: (-one.delivered, one.consumer))
    if not made:
        return (), None
    numbers = [one.delivered for one in made]
    evenness = sum(numbers) ** 2 / (len(made) * sum(number**2 for number in numbers))
    return tuple(made), figures.Balance(len(made), max(numbers), min(numbers), evenness)


def oldest(told: Sequence[Told], until_ms: int) -> tuple[figures.Oldest, ...]:
    last = {one.line.id: one for one in told}
    grouped = defaultdict(list)
    for one in last.values():
        if one.edge.target not in ENDS:
            since = one.line.at_ms if one.born is None else one.born
            takes = sum(each.takes for each in told if each.line.id == one.line.id)
            grouped[one.edge.target.value].append((since, one.line.id, one.line.level, takes))
    made = []
    for state, found in sorted(grouped.items()):
        since, name, level, takes = min(found)
        age = max(0, until_ms - since)
        made.append(figures.Oldest(state, len(found), name, level, takes, since, age))
    return tuple(made)


def model(lines: Sequence[Line], width: int) -> Report:
    # Those that leave a message in its state say nothing about its way.
    lines = [
        line for line in lines if EDGES[line.transition].source != EDGES[line.transition].target
    ]
    until_ms = max(line.at_ms for line in lines)
    queues = []
    for name in sorted({line.queue for line in lines}):
        lives: defaultdict[str, list[Line]] = defaultdict(list)
        told = []
        for line in sorted((one for one in lines if one.queue == name), key=lambda one: one.n):
            told.append(Told(line, lives[line.id]))
            lives[line.id].append(line)
        levels = sorted({one.line.level for one in told})
        each, balance = consumers(told)
        queues.append(
            figures.QueueReport(
                name,
                level_figures(None, told),
                tuple(level_figures(n, [o for o in told if o.line.level == n]) for n in levels),
                spans(told, width),
                each,
                balance,
                oldest(told, until_ms),
            )
        )
    return Report(min(line.at_ms for line in lines), until_ms, width, tuple(queues))


# -- the figures ------------------------------------------------------------------------------


def test_every_figure_is_that_of_the_model(spark: SparkSession) -> None:
    # Given the histories of many queues whose messages went every way there is
    lines = [line for seed in range(80) for line in walk(f"q{seed}", seed)]
    assert {line.transition for line in lines} == set(EDGES)
    # When they are reported on at once
    report = summarize(table(spark, lines), width=60)
    # Then every figure is what the definitions say
    wanted = model(lines, 60_000)
    for mine, theirs in zip(report.queues, wanted.queues, strict=True):
        assert mine == theirs
    assert report == wanted
    # And all of it is JSON
    assert json.loads(json.dumps(report.to_json()))["queues"][0]["queue"] == "q0"


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_web_page_shows_the_same_figures(step: int) -> None:
    for seed in range(40):
        lines = sorted(walk("q", seed), key=lambda one: one.n)
        events = [
            Event(b"", one.transition, one.id, one.level, one.attempt, one.consumer, one.at_ms, "")
            for one in lines
        ]
        found = web.Report()
        for begin in range(0, len(events), step):
            found.add(events[begin : begin + step])
        (wanted,) = model(lines, 60_000).queues
        whole = [] if len(wanted.levels) == 1 else [wanted.whole]
        rows = found.rows()
        assert [level for level, _ in rows] == [each.level for each in (*whole, *wanted.levels)]
        for (_, mine), theirs in zip(rows, (*whole, *wanted.levels), strict=True):
            for name in ("enqueued", "delivered", "redelivered", "done", "dead"):
                assert getattr(mine, name) == getattr(theirs, name), name
            for name in ("waiting", "service"):
                values = getattr(mine, name)
                ranks = web.percentiles(values)
                assert figures.Percentiles(len(values), *ranks) == getattr(theirs, name), name


def test_no_history_makes_an_empty_report_and_a_page_that_says_so(spark: SparkSession) -> None:
    report = summarize(table(spark, []))
    assert report == Report(None, None, None, ())
    assert "There is no history" in report.to_html()


@pytest.mark.parametrize("length_ms", [0, 999, 119_999, 120_000, 10**7, 10**10, 10**12])
def test_a_history_of_any_length_is_divided_into_a_number_of_spans_that_a_plot_can_show(
    length_ms: int,
) -> None:
    assert length_ms // span_width_ms(length_ms) < 120


# -- the page ---------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[31m\u202e$\\frac"


class Seen(HTMLParser):
    """The tags, addresses and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def one_of_everything(queue: str, consumer: str) -> Report:
    times = figures.Percentiles(3, 0, 1_500, 90_000)
    numbers = dict.fromkeys(counts([]), 3)
    return Report(
        NOON_MS,
        NOON_MS + 5_000,
        1_000,
        (
            figures.QueueReport(
                queue,
                figures.LevelFigures(
                    level=None, **numbers, waiting=times, service=times, whole=times
                ),
                (
                    figures.LevelFigures(
                        level=0, **numbers, waiting=times, service=times, whole=times
                    ),
                ),
                tuple(
                    figures.Span(
                        begin_ms=NOON_MS + n, **numbers, ready=n, waiting=times, longest_wait_ms=n
                    )
                    for n in range(0, 5_000, 1_000)
                ),
                (figures.ConsumerFigures(consumer, 3, 2, 1, times),),
                figures.Balance(1, 3, 3, 1.0),
                (figures.Oldest("ready", 1, queue, 0, 3, NOON_MS, 5_000),),
            ),
        ),
    )


@pytest.mark.parametrize("spans", [1, 2])
def test_the_axis_of_a_plot_is_as_long_as_what_it_shows(
    spans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = one_of_everything("q", "c")
    queue = replace(report.queues[0], spans=report.queues[0].spans[:spans])
    lengths, drawn = [], page._time_axis

    def look(axes: Any, *given: Any) -> None:
        drawn(axes, *given)
        begin, end = axes.get_xlim()
        lengths.append(round((end - begin) * 24 * 3600, 3))

    monkeypatch.setattr(page, "_time_axis", look)
    assert len(page.pictures(replace(report, until_ms=NOON_MS + spans * 1_000), queue)) == 4
    assert lengths == [spans, spans]


def test_names_of_queues_messages_and_consumers_can_do_nothing_to_the_page() -> None:
    # When a report is full of hostile names
    seen = Seen(one_of_everything(HOSTILE, HOSTILE).to_html(title=HOSTILE))
    # Then they are text, in which nothing hides
    assert "script" not in seen.tags
    assert not any(name.startswith("on") for name in seen.attributes)
    assert seen.text.count("<script>alert(1)</script>") >= 4
    assert "\x1b" not in seen.text
    assert "\u202e" not in seen.text


def test_the_page_needs_nothing_from_outside() -> None:
    text = one_of_everything("q", "c").to_html()
    seen = Seen(text)
    # All that it refers to is within it
    pictures = [address for address in seen.addresses if address.startswith("data:image/svg+xml")]
    assert len(pictures) == 4
    assert all(address.startswith(("#", "data:")) for address in seen.addresses)
    assert not re.search(r"@import|url\(", text)
    assert "default-src 'none'" in text
    # And its pictures do not go out, either
    for address in pictures:
        drawn = base64.b64decode(address.split(",", 1)[1]).decode()
        assert drawn.rstrip().endswith("</svg>")
        assert "<script" not in drawn
        assert not re.search(r'href="(?!#)', drawn)


def test_the_same_report_makes_the_same_page() -> None:
    report = one_of_everything("q", "c")
    assert report.to_html() == report.to_html()


def test_a_message_that_comes_back_waits_anew(spark: SparkSession) -> None:
    # Given a message that was released after a second, and taken again after one more
    life = ("enqueue", "lease", "release", "lease", "ack")
    report = summarize(table(spark, lived("q", 0, identity(0, 1), *life)))
    # Then it waited twice, and was served once
    whole = report.queues[0].whole
    assert whole.waiting == figures.Percentiles(2, 1000, 1000, 1000)
    assert whole.service == figures.Percentiles(1, 1000, 1000, 1000)
    assert whole.whole == figures.Percentiles(1, 4000, 4000, 4000)
    assert (whole.delivered, whole.redelivered, whole.returned) == (2, 1, 1)


# -- of queues in use -------------------------------------------------------------------------


@pytest.fixture
def kept() -> Iterator[tuple[fdb.Database, list[Queue]]]:
    """Two queues of the store at hand that keep their history, and a little of it."""
    db = fdbqueue.open()
    queues = [
        Queue.create(db, f"{name}-{uuid.uuid4().hex}", levels=2, history_seconds=3600)
        for name in ("a", "b")
    ]
    for queue in queues:
        queue.enqueue_many(db, [NewMessage(b"x", priority=p) for p in (0, 9, 9)])
        queue.ack(db, queue.receive_many(db, 1, consumer="first"))
        queue.release(db, queue.receive_many(db, 1, consumer="second"))
    yield db, queues
    for queue in queues:
        queue.delete(db)


def test_queues_in_use_are_reported_on_as_they_keep_their_history(
    spark: SparkSession, kept: tuple[fdb.Database, list[Queue]]
) -> None:
    db, queues = kept
    # When two queues are reported on at once
    report = fdbqueue.spark.report(db, queues, spark=spark)
    # Then the figures of each are what happened there
    for queue, found in zip(queues, report.queues, strict=True):
        assert found.queue == queue.name
        assert [level.level for level in found.levels] == [0, 1]
        assert (found.whole.enqueued, found.whole.delivered, found.whole.done) == (3, 2, 1)
        assert [each.consumer for each in found.consumers] == ["first", "second"]
        assert [(one.state, one.messages) for one in found.oldest] == [("ready", 2)]
    # And of a time before there is nothing
    early = datetime.fromtimestamp(NOON_MS / 1000, UTC)
    assert fdbqueue.spark.report(db, queues, spark=spark, until=early).queues == ()


def test_the_command_prints_tables_or_json_and_writes_the_page(
    spark: SparkSession,
    kept: tuple[fdb.Database, list[Queue]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, (one, two) = kept
    # When the command is asked for JSON of one queue, and a page
    file = tmp_path / "report.html"
    assert run(["stream", "report", one.name, "--json", "--html", str(file)]) == 0
    # Then it prints and writes them
    told = json.loads(capsys.readouterr().out)
    assert [each["queue"] for each in told["queues"]] == [one.name]
    assert one.name in Seen(file.read_text()).text
    # And otherwise it prints tables
    assert run(["stream", "report", one.name, two.name]) == 0
    printed = capsys.readouterr().out
    assert "wait p99" in printed
    assert "2 ready, the oldest" in printed


def test_a_queue_without_history_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    db, name = fdbqueue.open(), f"plain-{uuid.uuid4().hex}"
    queue = Queue.create(db, name)
    assert run(["stream", "report", name]) == 1
    assert "history_seconds" in capsys.readouterr().err
    queue.delete(db)
    assert run(["stream", "report", name]) == 1
    assert "there is no queue" in capsys.readouterr().err
