"""What every command of ``fdbq`` has: found by walking through all of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.cli.main import command, run
from fdbqueue.values.options import FIXED, QueueOptions

ROOT: Any = command()
LISTS = {"list", "show"}
DESTROYS = {"delete", "purge", "move", "cancel", "retry", "forget", "finish", "message release"}
"""Names of commands, or how their paths end, after which something is not where it was."""
OPERATORS = {"<", ">", "&&"}
ENDLESS = {"fdbq top", "fdbq worker run", "fdbq web", "fdbq metrics serve"}


def commands(command: Any = ROOT, path: str = "fdbq") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, f"{path} {name}")


ALL = dict(commands())


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def examples(command: Any) -> list[list[str]]:
    """The command lines in a help, each as far as it is ours: without what it is piped to."""
    text = command.help or ""
    found = []
    for line in text.splitlines() if "Example" in text else []:
        if line.strip().startswith("fdbq "):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            for part in " ".join(map(shlex.quote, words)).split("'|'"):
                mine = [*takewhile(lambda word: word not in OPERATORS, shlex.split(part))]
                found += [mine] if mine[0] == "fdbq" else []
    return found


def parse(line: list[str]) -> None:
    """Parse a command line as fdbq would; run nothing."""
    words, command, parent = line[1:], ROOT, None
    while True:
        context = command.make_context(command.name, words, parent=parent)
        if not getattr(command, "commands", None):
            return
        words = [*getattr(context, "_protected_args", []), *context.args]
        if not words:
            assert command.invoke_without_command, f"{line} names no command"
            return
        _, command, words = command.resolve_command(context, words)
        parent = context


def test_every_command_has_an_example_of_itself_that_parses() -> None:
    for path, each in ALL.items():
        found = examples(each)
        assert any(path in " ".join(line) or line == path.split()[:-1] for line in found), path
        for line in found:
            parse(line)


def test_what_the_script_for_a_release_calls_parses() -> None:
    script = Path(__file__).parent.parent.parent / "tools" / "lowest"
    called = re.findall(r'"\$fdbq" ([a-z][^)\n]+)', script.read_text())
    assert len(called) >= 3
    for line in called:
        parse(["fdbq", *shlex.split(line)])


def test_programs_get_json_from_every_command_that_ends() -> None:
    assert [
        path for path in ALL if path not in ENDLESS and "--json" not in options(ALL[path])
    ] == []


@pytest.mark.parametrize("path", [path for path in ALL if path.split()[-1] in LISTS])
def test_every_listing_has_json_and_can_be_watched(path: str) -> None:
    assert {"--json", "--watch"} <= options(ALL[path])


@pytest.mark.parametrize(
    "path", [path for path in ALL if path.endswith(tuple(f" {name}" for name in DESTROYS))]
)
def test_what_destroys_can_be_tried_and_asks_first(path: str) -> None:
    assert {"--dry-run", "--yes"} <= options(ALL[path])


def test_the_help_names_every_option_that_can_be_set() -> None:
    named = set(re.findall(r"\w+", ALL["fdbq queue set"].help.split("Options:")[1]))
    assert {each.name for each in fields(QueueOptions)} - {*FIXED, "paused"} == named & {
        each.name for each in fields(QueueOptions)
    }


@pytest.mark.parametrize("command", ["", "queue", "message", "worker"])
def test_a_group_alone_shows_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command.split()) == 2
    shown = capsys.readouterr()
    assert (shown.out + shown.err).startswith(f"Usage: fdbq {command}".rstrip())
    assert "Commands:\n" in shown.out + shown.err
