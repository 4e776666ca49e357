"""The site builds without a warning, and nothing is missing in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue import errors
from tests.patience import DEADLINE
from tools import mkdocs_docstrings

ROOT = Path(__file__).parent.parent.parent
ELSEWHERE = {f"fdbqueue.{name}" for name in ("fdb", "Headers", "context", "errors", "metrics")}
"""The official bindings, an alias, an instance, and modules with pages of their own."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as tools/site builds it."""
    directory = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
    ]  # Not --quiet: that hides warnings from --strict.
    done = subprocess.run(
        [*command, "--config-file", ROOT / "tools" / "mkdocs.yml", "--site-dir", directory],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return directory


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert built == {
        *(
            page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")
            for page in pages
        ),
        Path("404.html"),
    }
    assert "exactly" in (site / "search" / "search_index.js").read_text()


def tree(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def test_every_public_name_has_its_reference(site: Path) -> None:
    # As an inventory of Sphinx: four lines, then the names, compressed.
    compressed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    named = {line.split()[0] for line in zlib.decompress(compressed).decode().splitlines()}
    wanted = {f"fdbqueue.{name}" for name in fdbqueue.__all__} - ELSEWHERE
    wanted |= {
        f"fdbqueue.errors.{each.__name__}"
        for each in tree(errors.QueueError)
        if each.__module__ == errors.__name__
    }
    assert wanted - named == set()
    methods = {f"fdbqueue.Queue.{name}" for name in vars(fdbqueue.Queue) if name[0] != "_"}
    assert methods - named == set()


def test_nothing_is_loaded_from_elsewhere_to_read_a_page(site: Path) -> None:
    page = (site / "index.html").read_text()
    loaded = re.findall(r"<(?:script|img)[^>]* src=\"([^\"]*)|<link[^>]* href=\"([^\"]*)", page)
    assert loaded
    assert not [found for pair in loaded for found in pair if found.startswith(("http", "//"))]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("One.\n\nname: a thing\n    of note", "One.\n\n- `name`: a thing\n  of note"),
        ("One.\na, b: both", "One.\n\n- `a`, `b`: both"),
        ("``x`` of ``y``", "`x` of `y`"),
        ("a: one\nb: two\n\nEnd.", "- `a`: one\n- `b`: two\n\nEnd."),
        ("Of two words: no argument.", "Of two words: no argument."),
    ],
)
def test_arguments_of_a_docstring_are_a_list(text: str, shown: str) -> None:
    assert mkdocs_docstrings.as_markdown(text) == shown
