"""The page on architecture says what the package is, and no page names a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import fdbqueue
from tests.unit import test_layers as layers

PACKAGE = Path(fdbqueue.__file__).parent
ROOT = PACKAGE.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PATHS = re.compile(r"`([\w./-]+(?:\.py|/))`")
LONG_PATHS = re.compile(r"`((?:fdbqueue|tests|tools)/[\w./-]+)`")


def arrows() -> dict[str, set[str]]:
    """The picture: which rooms each room points at."""
    picture = re.search(r"```mermaid\n(.+?)```", PAGE, re.DOTALL)
    assert picture is not None
    found: dict[str, set[str]] = {room: set() for room in layers.FLOOR}
    for line in picture[1].splitlines()[1:]:
        start, ends = re.sub(r'\["[^"]*"\]', "", line).split("-->")
        found[start.strip()] |= {end.strip() for end in ends.split("&")}
    return found


def below(room: str) -> set[str]:
    """The rooms that the picture leads to from a room."""
    found = set()
    for other in arrows()[room]:
        found |= {other} | below(other)
    return found


def test_paths_of_the_page_are_there() -> None:
    paths = PATHS.findall(PAGE)
    assert paths
    assert [
        each for each in paths if not ((PACKAGE / each).exists() or (ROOT / each).exists())
    ] == []


def test_paths_of_any_page_are_there() -> None:
    paths = [(page.name, path) for page in PAGES for path in LONG_PATHS.findall(page.read_text())]
    assert [each for each in paths if not (ROOT / each[1]).exists()] == []


def test_the_picture_has_every_room_and_leads_down() -> None:
    assert arrows().keys() == layers.FLOOR.keys()
    for room, others in arrows().items():
        assert all(layers.FLOOR[other] < layers.FLOOR[room] for other in others), room


def test_the_picture_leads_to_everything_that_a_room_imports() -> None:
    for name in layers.MODULES:
        room = layers.room(name)
        others = {layers.room(other) for other in layers.imported(name)} - {room, ""}
        if room:
            assert others <= below(room), name


def test_the_table_of_rooms_has_every_room_once() -> None:
    rows = re.findall(r"^\| (`.+?) \| .+ \| .+ \|$", PAGE, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(layers.FLOOR)
