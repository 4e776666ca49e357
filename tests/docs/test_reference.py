"""What the documentation takes from the code is what the code says."""

from __future__ import annotations

import inspect
import itertools
import re
from pathlib import Path

import pytest

import fdbqueue
from fdbqueue import Connection, Producer, Queue, Subscription, Worker
from tests.docs.test_pages import PAGES, ROOT
from tests.unit.test_commands import ALL, options
from tools.reference import pages

METHOD = re.compile(r"`(?:Queue|queue)\.(\w+)(?:\.(\w+))?")
COMMAND = re.compile(r"`fdbq ([a-z]+)(?: ([a-z]+))?")
DOCS = ROOT / "docs"
GROUPS = {path.rpartition(" ")[0] for path in ALL}


@pytest.mark.parametrize(
    ("page", "wanted"), pages().items(), ids=lambda value: getattr(value, "name", "")
)
def test_a_page_is_up_to_date(page: Path, wanted: str) -> None:
    assert page.read_text() == wanted, "run: python tools/reference.py"


def is_there(name: str, part: str) -> bool:
    """Whether a queue has a method or a part of this name, and that one of the other."""
    of_part = not part or hasattr(getattr(Queue("orders"), name, None), part)
    return hasattr(Queue, name) and of_part


def is_a_command(first: str, second: str) -> bool:
    """Whether there is a command or a group that begins with these words."""
    whole = f"fdbq {first} {second}".strip()
    run = whole.startswith("fdbq worker ")  # which may leave out its verb
    return whole in {*ALL, *GROUPS} or f"fdbq {first}" in ALL or run


def test_what_pages_call_is_there() -> None:
    missing = [
        f"{page.name}: {found[0]}"
        for page in PAGES
        for pattern, known in ((METHOD, is_there), (COMMAND, is_a_command))
        for found in pattern.finditer(page.read_text())
        if not known(found[1], found[2] or "")
    ]
    assert missing == []


def test_the_options_that_pages_give_to_commands_are_there() -> None:
    everywhere = {"--store", "--root", "--help"}
    seen, wrong = 0, []
    for page in PAGES:
        for line in re.findall(r"\bfdbq [a-z][^`\n|#&<>]*", page.read_text()):
            words = line.split()
            called = (" ".join(words[:count]) for count in (3, 2))
            path = next((each for each in called if each in ALL), "fdbq worker run")
            given = {word.partition("=")[0].rstrip(",.)") for word in words if word[:2] == "--"}
            seen += bool(given)
            wrong += [f"{page.name}: {line}"] * bool(given - options(ALL[path]) - everywhere)
    assert seen > 50
    assert wrong == []


def test_the_api_on_one_page_has_every_public_name() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    queue = Queue("orders")
    properties = [
        name for name, _ in inspect.getmembers(Queue, lambda each: type(each) is property)
    ]
    parts = {type(getattr(queue, name)) for name in properties if name[0] != "_"}
    ours = {part for part in parts if part.__module__.startswith("fdbqueue.")}
    assert len(ours) >= 9
    holders = [Queue, Subscription, Worker, Producer, Connection, *ours]
    names = {*fdbqueue.__all__, *itertools.chain.from_iterable(map(dir, holders))}
    public = {name for name in names if name[0] != "_"}
    assert public - {*re.findall(r"\w+", page)} == set()
