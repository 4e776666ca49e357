"""The report on delivery history: its figures are those of a plain model, its page is harmless."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterator
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
from fdbqueue.values.states import TRANSITIONS
from fdbqueue.web.pages import history as web

from .histories import NOON_MS, identity, lived, table, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from fdbqueue.spark.reports.report import Report, span_width_ms, summarize

# -- the figures ------------------------------------------------------------------------------


def test_figures_are_the_same_in_a_table_and_on_the_web_page(spark: SparkSession) -> None:
    # Given the histories of many queues whose messages went every way there is
    every = {f"q{seed:02}": walk(f"q{seed:02}", seed) for seed in range(80)}
    lines = [line for some in every.values() for line in some]
    assert {line.transition for line in lines} == {edge.name for edge in TRANSITIONS}
    # When they are reported on at once, and each is looked at in steps
    report = summarize(table(spark, lines), width=60)
    assert [each.queue for each in report.queues] == sorted(every)
    for n, wanted in enumerate(report.queues):
        events = [
            Event(b"", one.transition, one.id, one.level, one.attempt, one.consumer, one.at_ms, "")
            for one in sorted(every[wanted.queue], key=lambda one: one.n)
        ]
        found, step = web.HistoryReport(), (1, 7, 1000)[n % 3]
        for begin in range(0, len(events), step):
            found.add(events[begin : begin + step])
        # Then the figures are the same
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
    # And all of it is JSON
    assert json.loads(json.dumps(report.to_json()))["queues"][0]["queue"] == "q00"


def test_no_history_makes_an_empty_report_and_a_page_that_says_so(spark: SparkSession) -> None:
    report = summarize(table(spark, []))
    assert report == Report(None, None, None, ())
    assert "There is no history" in report.to_html()


@pytest.mark.parametrize("length_ms", [0, 999, 118_999, 119_000, 119_999, 10**7, 10**10, 10**12])
def test_a_history_of_any_length_is_divided_into_a_number_of_spans_that_a_plot_can_show(
    length_ms: int,
) -> None:
    width_ms = span_width_ms(length_ms)
    # Spans begin at round times, so a history may begin at the end of its first one.
    begin_ms = 7 * width_ms - 1
    assert (begin_ms + length_ms) // width_ms - begin_ms // width_ms + 1 <= 120


# -- the page ---------------------------------------------------------------------------------

COUNTS = (
    *("enqueued", "delivered", "redelivered", "done"),
    *("returned", "dead", "expired", "purged"),
)
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
    numbers = dict.fromkeys(COUNTS, 3)
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
                    figures.TimeSpan(
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
    report = summarize(table(spark, lived("q", 0, identity(0, 1), *life)), width=2)
    # Then it waited twice, and was served once
    whole = report.queues[0].whole
    assert whole.waiting == figures.Percentiles(2, 1000, 1000, 1000)
    assert whole.service == figures.Percentiles(1, 1000, 1000, 1000)
    assert whole.whole == figures.Percentiles(1, 4000, 4000, 4000)
    assert (whole.delivered, whole.redelivered, whole.returned) == (2, 1, 1)
    # And each span has what happened in it
    spans = report.queues[0].spans
    assert [(each.enqueued, each.delivered, each.done, each.ready) for each in spans] == [
        (1, 1, 0, 0),
        (0, 1, 0, 0),
        (0, 0, 1, 0),
    ]
    (consumer,) = report.queues[0].consumers
    assert (consumer.delivered, consumer.done, consumer.failed) == (2, 1, 1)
    assert report.queues[0].balance == figures.Balance(1, 2, 2, 1.0)


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
