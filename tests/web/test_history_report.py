"""The figures of a history on the page."""

from __future__ import annotations

from fdbqueue.values.model import Event
from fdbqueue.web.pages.history import HistoryReport


def test_a_dead_letter_that_is_edited_has_died_once() -> None:
    report = HistoryReport()
    names = ("enqueue", "lease", "dead-letter", "revise dead")
    report.add([Event(b"", each, "a", 5, 0, "", n, "") for n, each in enumerate(names)])
    assert report.whole.dead == 1
