"""The page on architecture says what the package is, and no page names a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import fdbqueue

PACKAGE = Path(fdbqueue.__file__).parent
ROOT = PACKAGE.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PATHS = re.compile(r"`([\w./-]+(?:\.py|/))`")
LONG_PATHS = re.compile(r"`((?:fdbqueue|tests|tools)/[\w./-]+)`")


def test_paths_of_the_page_are_there() -> None:
    paths = PATHS.findall(PAGE)
    assert paths
    assert [
        each for each in paths if not ((PACKAGE / each).exists() or (ROOT / each).exists())
    ] == []


def test_paths_of_any_page_are_there() -> None:
    paths = [(page.name, path) for page in PAGES for path in LONG_PATHS.findall(page.read_text())]
    assert [each for each in paths if not (ROOT / each[1]).exists()] == []
