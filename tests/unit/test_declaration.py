"""Command lines that are parsed without typer: as typer parses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main

from fdbqueue.cli import durations
from fdbqueue.cli.declarations import parse
from fdbqueue.cli.main import application, find
from fdbqueue.cli.terminal import CommandError

LINES = [
    "peek orders",
    "peek orders --max 3 --json --watch 1m",
    "peek --max=3 orders",
    "browse orders --level 0 --level 2 --state delayed",
    "receive orders --max 10 --lease 1h30m --ack",
    "enqueue orders text --header a=b --header c=d --priority 7 --delay 2d",
    "enqueue orders --file some/file",
    "cancel orders a b c --yes",
    "queue create a b --levels 3 --set x=1",
    "queue list mail- --non-empty --sort ready",
    "queue purge orders -y --state dead",
    "dead redrive orders id --rate 2.5",
    "ack orders",
    "doctor --quick",
]
NOT_PLAIN = [
    "peek",
    "peek a b",
    "peek a --max",
    "peek a --max x",
    "peek a --max 0",
    "peek a --jso",
    "peek a --json=1",
    "browse a --state nowhere",
    "queue",
    "queue lst",
    "peek --help",
    "enqueue a -- -x",
]


def told(value: Any) -> Any:
    """A value, however it says nothing, and names a file."""
    if value in ((), []):
        return None
    return str(value) if isinstance(value, Path) else value


def by_typer(words: list[str]) -> dict[str, Any]:
    """What typer hands to the function of a command."""
    command: Any
    command, parent = typer.main.get_command(application()), None
    left = words
    while True:
        context: Any = command.make_context(command.name, [*left], parent=parent)
        if not getattr(command, "commands", None):
            return {name: told(value) for name, value in context.params.items()}
        rest = [*getattr(context, "_protected_args", []), *context.args]
        _, command, left = command.resolve_command(context, rest)
        parent = context


@pytest.mark.parametrize("line", LINES)
def test_a_plain_command_line_is_what_typer_makes_of_it(line: str) -> None:
    words = line.split()
    function, rest = find(words)

    assert function is not None
    plain = parse(function, rest)
    assert plain is not None
    assert {name: told(value) for name, value in plain.items()} == by_typer(words)


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_all_others_are_left_to_typer(line: str) -> None:
    function, rest = find(line.split())

    assert function is None or parse(function, rest) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("2w", 1_209_600),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1x", "h", "1 h", "1h-2m", "one"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="not a duration"):
        durations.seconds(text)
