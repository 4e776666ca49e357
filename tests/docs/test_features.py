"""What pages say of tests, guarantees and origins."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_guarantee_has_tests() -> None:
    promised = re.findall(
        r"^(\d)\. \*\*", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE
    )
    marks = re.compile(r"mark\.promise\(([\d, ]+)\)")
    marked = {
        number
        for file in (ROOT / "tests").rglob("test_*.py")
        for numbers in marks.findall(file.read_text())
        for number in numbers.split(", ")
    }
    assert marked == {*promised}


def test_every_behaviour_of_an_origin_is_here_or_is_said_not_to_be() -> None:
    page = (ROOT / "docs" / "migration" / "origins.md").read_text()
    assert len(re.findall("^## ", page, re.MULTILINE)) == 5
    rows = re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE)
    behaviours = dict(row for row in rows if row != ("behaviour", "here"))
    assert len(behaviours) == len(rows) - 5
    assert all(re.match(r"(yes$|not (yet|here)\b)", cell) for cell in behaviours.values())
