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
    *("bench", "cli", "client", "code", "commit", "database", "decision", "error", "file"),
    *("main", "model", "moved", "option", "page", "process", "range", "run", "setting", "spark"),
    *("terminal", "testing", "text", "version"),
}
MODULES = sorted(
    {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
)


def words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", name.replace("_moved", "moved"))


def forms(word: str) -> set[str]:
    """The word, its plural and its singular."""
    return {word, f"{word}s", word.removesuffix("s"), word.removesuffix("es")}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_named_in_the_words_of_its_field(name: str) -> None:
    assert [word for word in words(name) if not forms(word) & (TERMS | USUAL)] == []


def test_a_usual_word_is_one_that_a_module_has_and_the_glossary_does_not() -> None:
    had = {form for name in MODULES for word in words(name) for form in forms(word)}
    assert had >= USUAL
    assert not USUAL & TERMS


def test_a_term_is_defined_once() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\*", GLOSSARY, re.M)
    assert sorted(rows) == sorted(set(rows))
