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


def test_only_pages_for_contributors_name_tests() -> None:
    assert {page.name for page in PAGES} == {"hardening.md", "proofs.md"}
    assert not NAMED.search((ROOT / "README.md").read_text())


def test_only_pages_for_contributors_name_keys_of_algorithms() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {page.name for page in pages if re.search(r"\b(GUARD|FENCE|TAIL)\b", page.read_text())}
    assert named <= {"architecture.md", "format.md", "glossary.md", "storage.md"}


def test_every_guarantee_names_its_tests() -> None:
    # Given the guarantees, by their numbers and names
    guarantees = (ROOT / "docs" / "guarantees.md").read_text()
    promised = re.findall(r"^(\d)\. \*\*(.+?)\.\*\*", guarantees, re.MULTILINE)
    assert promised
    # Then each has a row of tests on the page for contributors
    proofs = (ROOT / "docs" / "proofs.md").read_text()
    rows = dict(re.findall(r"^\| (\d\. .+?) \| (.+) \|$", proofs, re.MULTILINE))
    assert list(rows) == [f"{number}. {name.lower()}" for number, name in promised]
    assert all(NAMED.search(tests) for tests in rows.values())
