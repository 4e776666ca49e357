"""Each decision has a number, a status and a date, fits on a page, and stands in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("0*.md"))
INDEX = (FOLDER / "README.md").read_text()
ROW = re.compile(r"^\| \[(\d+)\]\((.+?)\) \| (.+?) \| (\w+) \| (\d{4}-\d\d-\d\d) \|$", re.MULTILINE)
MOST_LINES = 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_decision_has_a_status_and_a_date_and_fits_on_a_page(page: Path) -> None:
    text = page.read_text()
    head = re.match(r"# (\d+)\. (.+)\n\n\*\*Status:\*\* (\w+), (\d{4}-\d\d-\d\d)\.\n", text)
    assert head is not None
    assert page.name.startswith(f"{int(head[1]):04}-")
    assert len(text.splitlines()) <= MOST_LINES
    rows = [row for row in ROW.findall(INDEX) if row[1] == page.name]
    assert [(row[0], *row[3:]) for row in rows] == [(head[1], head[3], head[4])]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(row[0]) for row in ROW.findall(INDEX)] == list(range(1, len(PAGES) + 1))
