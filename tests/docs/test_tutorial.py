"""The tutorial: its files are those that the pages tell the reader to save."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
TUTORIAL = DOCS / "tutorial"


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
    titles = {page: page.read_text().splitlines()[0] for page in TUTORIAL.glob("*.md")}
    pages = sorted(titles, key=lambda page: titles[page])
    assert [titles[page][:5] for page in pages] == [f"# {n}. " for n in range(1, len(pages) + 1)]
    for page, following in itertools.pairwise(pages):
        assert f"]({following.name})" in page.read_text(), page
