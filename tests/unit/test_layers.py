"""Imports point one way: from what users hold down to the values and the store."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fdbqueue

PACKAGE = Path(fdbqueue.__file__).parent

FLOORS = [
    {"errors"},
    {"values"},
    {"store"},
    {"schema"},
    {"messages"},
    {"consumers", "subscriptions"},
    {"queue"},
    {"worker", "spark", "metrics", "web"},
    {"aio", "cli", "testing"},
]
"""The rooms of the package, floor by floor. A room imports only from floors below its own."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MOST_ROOMS, MOST_FLOORS, MOST_FILES = 15, 9, 16


def module(path: Path) -> str:
    parts = ["fdbqueue", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def imported(name: str) -> set[str]:
    """The modules of the package that a module imports, also inside its functions."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in MODULES else source)
    return {each for each in found if each in MODULES and each != name}


def room(name: str) -> str:
    inner = name.split(".")[1] if "." in name else ""
    return "" if inner.startswith("_") else inner


def points_down(name: str, other: str) -> bool:
    mine, theirs = room(name), room(other)
    if mine in ("", theirs):
        return True
    return FLOOR[theirs] < FLOOR[mine] if theirs else mine in ("cli", "testing")


def test_imports_point_down() -> None:
    imports = [(name, other) for name in MODULES for other in imported(name)]
    assert [each for each in imports if not points_down(*each)] == []


def test_no_imports_go_in_a_circle() -> None:
    try:
        TopologicalSorter({name: imported(name) for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_the_engine_imports_nothing_of_the_layer() -> None:
    engine = [name for name in MODULES if name.startswith("fdbqueue.store.embedded")]
    assert engine
    for name in engine:
        outside = imported(name) - {*engine, "fdbqueue.store.world"}
        assert not outside, f"{name} imports {outside}"


def test_only_the_schema_builds_keys() -> None:
    for name, path in MODULES.items():
        if room(name) != "schema" and not name.startswith("fdbqueue.store.embedded"):
            assert "fdb.tuple" not in path.read_text(), f"{name} packs or unpacks a key"
