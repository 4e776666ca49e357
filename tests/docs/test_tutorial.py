"""The tutorial: its files are those that pages tell the reader to save; mistakes do no harm."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

import pytest

from tests.docs.test_pages import run, run_blocks_of, runnable

DOCS = Path(__file__).parent.parent.parent / "docs"
TUTORIAL = DOCS / "tutorial"
PAGES = sorted(TUTORIAL.glob("*.md"), key=lambda page: page.read_text().splitlines()[0])


@pytest.mark.parametrize(
    ("page", "file"), [("first-message.md", "shop.py"), ("worker.md", "kitchen.py")]
)
def test_a_page_shows_the_file_that_later_pages_import(page: str, file: str) -> None:
    told = (TUTORIAL / page).read_text()
    _, after = told.split(f"ave this as `{file}`", 1)
    saved = re.search(r"^```python\n(.*?)^```$", after, re.MULTILINE | re.DOTALL)
    assert saved is not None
    assert saved[1] == (DOCS / "examples" / file).read_text()


def test_each_page_leads_to_the_next_one() -> None:
    titles = [page.read_text().splitlines()[0] for page in PAGES]
    assert [title[:5] for title in titles] == [f"# {n}. " for n in range(1, len(PAGES) + 1)]
    for page, following in itertools.pairwise(PAGES):
        assert f"]({following.name})" in page.read_text(), page


def test_pages_run_in_any_order_and_again(tmp_path: Path) -> None:
    run([*reversed(PAGES), *PAGES], tmp_path)


def halves(page: Path, every: int = 7) -> list[list[tuple[str, str]]]:
    """What ran of a page where the reader interrupts it after so many statements, and so on."""
    code = "".join(text for language, text in runnable(page) if language == "python")
    lines = code.splitlines(keepends=True)
    ends = [statement.end_lineno for statement in ast.parse(code).body][1::every]
    return [[("python", "".join(lines[:end]))] for end in ends]


def test_a_page_works_whatever_was_left_halfway(tmp_path: Path) -> None:
    following = itertools.cycle(PAGES)
    left = [half for page in PAGES for half in halves(page)]
    assert len(left) > 2 * len(PAGES)
    tried = [blocks for half in left for blocks in (half, runnable(next(following)))]
    run_blocks_of(tried, tmp_path, with_spark=False)
