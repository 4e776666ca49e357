"""Figures that pages repeat are those of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NUMBER = re.compile(r"\d[\d,]*\d|\d")


def rows(text: str, start: str) -> list[list[str]]:
    """The cells of the first table that begins with ``start``, without the line below its head."""
    (table,) = re.findall(rf"^\| {re.escape(start)}.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)[:1]
    lines = [line for line in table.splitlines() if not line.startswith("|---")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.fixture(scope="module")
def measured() -> dict[str, set[str]]:
    """All figures of each peer in the first run of the benchmarks beside others."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    section = page[page.index("## Beside other queues") :]
    table = rows(section, "| durable")
    return {name: {*NUMBER.findall(" ".join(cells))} for name, *cells in table[1:]}


def test_the_readme_shows_figures_of_the_benchmarks(measured: dict[str, set[str]]) -> None:
    head, *table = rows((ROOT / "README.md").read_text(), "| enqueue, 1 and 4 processes")
    assert len(table) == 6
    for name, *cells in table:
        (peer,) = [each for each in measured if name.startswith(each)]
        assert {*NUMBER.findall(" ".join(cells))} <= measured[peer], head


def test_the_page_of_peers_shows_figures_of_the_benchmarks(measured: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "peers.md").read_text()
    wins, loses = page.split("## Where it loses")
    for part in (wins, loses):
        (_, *peers), *table = rows(part, "messages a second, embedded store, one run")
        for _, *cells in table:
            for peer, cell in zip(peers, cells, strict=True):
                (known,) = [each for each in measured if each.startswith(peer)]
                assert {*NUMBER.findall(cell)} <= measured[known], (peer, cell)


def test_the_page_of_peers_shows_the_kills_of_the_benchmarks() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("benchmarks.md", "peers.md")]
    (measured, shown) = (rows(page, "| not handled") for page in pages)
    for name, *cells in shown[1:]:
        (known,) = [row for row in measured if row[0].startswith(name)]
        assert cells == known[1:]
