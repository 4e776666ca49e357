"""Imports point one way: from the public queue down to the values."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fdbqueue

PACKAGE = Path(fdbqueue.__file__).parent

LAYERS = [
    {"_stubs", "errors"},
    {"durations", "states"},
    {"model"},
    {"backoff"},
    {"options"},
    {"binding", "elements"},
    {"clock", "codec", "compression", "keys", "selector"},
    {"serializers"},
    {"queue"},
    {"subscriptions", "consumers"},
    {"connection", "drafts", "handle", "producing", "receiving"},
    {"batches", "letters", "surveying", "sweeping"},
    {"planners"},
    {"moving", "settling", "subscribing", "tending"},
    {"consuming"},
    {"subscribers"},
    {"api"},
    {"importing", "sinks", "verification"},
    {"tracing"},
    {"worker"},
    {"metrics", "spark", "testing"},
    {"__init__"},
    {"bench"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def top(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    """The parts of the package that a module imports."""
    parts = ("fdbqueue", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: -node.level]) if node.level else ""
            name = ".".join(filter(None, [base, node.module]))
            names = (
                [f"{name}.{alias.name}" for alias in node.names] if name == "fdbqueue" else [name]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("fdbqueue.")}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    mine = top(path)
    for other in imported(path) - {mine}:
        if mine == "embedded":
            pytest.fail(f"the engine imports {other} of the layer")
        if other == "embedded":
            assert mine in ("binding", "bench"), "binding imports the engine; bench, its faults"
        elif other not in RANK:
            assert mine in ("cli", "__init__", "worker", "spark"), f"{other} is not in the layers"
        else:
            assert RANK[other] < RANK[mine], f"{mine} imports {other}, which is not below it"


def test_only_keys_builds_keys() -> None:
    for path in modules():
        if top(path) in ("keys", "embedded"):
            continue
        assert "fdb.tuple" not in path.read_text(), f"{path} packs or unpacks a key"
