"""The tests that the documentation names for a feature are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fdbqueue.schema.keys import Kind

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if NAMED.search(page.read_text())]
READ = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for file, name in NAMED.findall(page.read_text()):
        assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / file).read_text(), re.MULTILINE), (
            f"{file} has no {name}"
        )


def test_only_pages_for_contributors_name_tests() -> None:
    named = {page.name for page in READ if re.search(r"\btests[/.]\w", page.read_text())}
    assert named <= {"architecture.md", "format.md", "hardening.md", "proofs.md"}


def test_only_pages_for_contributors_name_kinds_of_keys() -> None:
    kinds = re.compile(rf"\b({'|'.join(kind.name for kind in Kind)})\b")
    named = {page.name for page in READ if kinds.search(BLOCK.sub("", page.read_text()))}
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


def test_every_behaviour_of_an_origin_has_a_test_or_is_said_not_to_be_there() -> None:
    page = (ROOT / "docs" / "migration" / "origins.md").read_text()
    # Given the systems that the page names, each with a table
    assert len(re.findall("^## ", page, re.MULTILINE)) == 5
    rows = re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE)
    behaviours = dict(row for row in rows if row != ("behaviour", "test"))
    assert len(behaviours) == len(rows) - 5
    # Then what proves each is named, or the row says that it is missing
    unproved = {what: cell for what, cell in behaviours.items() if not NAMED.search(cell)}
    assert all(re.match(r"not (yet|here)\b", cell) for cell in unproved.values()), unproved
