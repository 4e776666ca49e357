"""The tests that the documentation names for a feature are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if NAMED.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for file, name in NAMED.findall(page.read_text()):
        assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / file).read_text(), re.MULTILINE), (
            f"{file} has no {name}"
        )
