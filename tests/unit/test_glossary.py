"""Each module is named in the words of its field: those of the glossary, or Python's usual ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fdbqueue

PACKAGE = Path(fdbqueue.__file__).parent
GLOSSARY = (PACKAGE.parent / "docs" / "glossary.md").read_text()
TERMS = {
    word
    for term in re.findall(r"\*\*(.+?)\*\*|\(module `(\w+)`\)", GLOSSARY)
    for word in re.findall(r"[a-z]+", "_".join(term).lower())
}
USUAL = {
    *("bench", "bulk", "checks", "cli", "client", "codes", "commit", "database", "decisions"),
    *("encoding", "errors", "events", "file", "format", "index", "init", "json", "limits", "live"),
    *("load", "main", "map", "measure", "messages", "model", "moved", "operations", "options"),
    *("page", "position", "process", "processes", "quick", "range", "ranges", "read", "reads"),
    *("records", "rows", "rules", "run", "runs", "settings", "setup", "side", "spark", "special"),
    *("start", "state", "states", "stores", "table", "tables", "terminal", "testing", "text"),
    *("time", "to", "tree", "tuple", "values", "versions", "window", "write", "writes"),
}
MODULES = sorted(
    {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
)


def known(word: str) -> bool:
    """Whether the word, or its singular, is defined or usual."""
    forms = {word, f"{word}s", word.removesuffix("s"), word.removesuffix("es")}
    return bool(forms & (TERMS | USUAL))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_named_in_the_words_of_its_field(name: str) -> None:
    words = re.findall(r"[a-z]+", name.replace("_moved", "moved"))
    assert [word for word in words if not known(word)] == []


def test_a_term_is_defined_once() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\*", GLOSSARY, re.M)
    assert sorted(rows) == sorted(set(rows))
