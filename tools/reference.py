"""Generates the parts of the documentation that come from the code. Run it after changing either.

It generates all of docs/cli.md and of fdbqueue/aio/queues.pyi, and in other pages the text between
a comment that names this file and the comment "end". A test fails if a page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from aio_stubs import TARGET, stubs

from fdbqueue.cli.main import app
from fdbqueue.consumers.states import MOVES
from fdbqueue.values.states import TRANSITIONS, State

ROOT = Path(__file__).parent.parent


def pages() -> dict[Path, str]:
    """Every page with generated text, as it should be."""
    docs = ROOT / "docs"
    return {
        docs / "cli.md": cli(),
        docs / "guarantees.md": _with(docs / "guarantees.md", "states", states()),
        docs / "storage.md": _with(docs / "storage.md", "kinds", kinds()),
        docs / "workers.md": _with(docs / "workers.md", "moves", moves()),
        TARGET: stubs(),
    }


def _with(page: Path, name: str, text: str) -> str:
    begin, end = rf"(<!-- {name}: [^>]*-->\n)", r"(<!-- end -->)"
    found = re.sub(begin + ".*?" + end, lambda m: m[1] + text + m[2], page.read_text(), flags=re.S)
    assert text in found, f"{page} has no comment for {name}"
    return found


# -- states and keys --------------------------------------------------------------------------


def states() -> str:
    """The states and transitions as a diagram and a table."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for edge in TRANSITIONS:
        source = edge.source.value if edge.source else "[*]"
        lines.append(f"    {source} --> {edge.target.value}: {edge.name}")
    ends = sorted(
        {state.value for state in State} - {e.source.value for e in TRANSITIONS if e.source}
    )
    lines += [f"    {state} --> [*]" for state in ends]
    lines += ["```", "", "| transition | from | to |", "|---|---|---|"]
    for edge in TRANSITIONS:
        source = edge.source.value if edge.source else ""
        lines.append(f"| {edge.name} | {source} | {edge.target.value} |")
    return "\n".join(lines) + "\n"


def moves() -> str:
    """The lists of consumers and the moves between them as a diagram."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for move in MOVES:
        source, target = (
            "[*]" if state is None else state.name.lower() for state in (move.source, move.target)
        )
        lines.append(f"    {source} --> {target}: {move.name}")
    return "\n".join([*lines, "```"]) + "\n"


def kinds() -> str:
    """The kinds of keys, from the comments beside them."""
    code = (ROOT / "fdbqueue" / "schema" / "keys" / "kinds.py").read_text()
    lines = ["| kind | | key | value |", "|---|---|---|---|"]
    for name, number, comment in re.findall(r"^    ([A-Z_]+) = (\d+)  # (.*)$", code, re.M):
        key, value = re.split(r" -> |: ", comment, maxsplit=1)
        lines.append(f"| {name} | {number} | `{key}` | {value} |")
    return "\n".join(lines) + "\n"


# -- the command line -------------------------------------------------------------------------


def cli() -> str:
    """The page on the command line."""
    command = typer.main.get_command(app)
    parts = [
        "# The command line",
        "",
        "Manage queues, messages and consumers from a shell with `fdbq`.",
        "",
        "- Exit codes are 0 for success, 1 for a failure, 2 for wrong usage or invalid input, and",
        "  130 for an interrupt. An error is one line on standard error, starting with `fdbq:`.",
        "- A DURATION is a number of seconds, or for example `250ms`, `15m`, `1h30m` or `7d`.",
        "- [json.md](json.md) describes what `--json` prints.",
        "- A command that removes or moves something asks first. Use `--dry-run` to see what it",
        "  would do, and `--yes` to skip the question.",
        "",
        "tools/reference.py generates this page from the help of the commands.",
        "",
    ]
    return "\n".join([*parts, *_command(command, "fdbq", 2)]).rstrip() + "\n"


def _command(command: Any, path: str, depth: int) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    children = getattr(command, "commands", {})
    usage = [path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    yield from ("#" * depth + f" {path}", "", "```text")
    yield " ".join([*usage, *(["COMMAND …"] if children else [])])
    yield from ("```", "", *_help(command.help or ""))
    if options or arguments:
        yield from ("| | |", "|---|---|")
        for parameter in arguments:
            yield f"| `{_argument(parameter)}` | {_escaped(parameter.help or '')} |"
        for parameter in options:
            yield f"| `{_option(parameter)}` | {_escaped(_described(parameter))} |"
        yield ""
    if command.epilog:
        yield from (command.epilog, "")
    for name, child in children.items():
        yield from _command(child, f"{path} {name}", depth + 1)


def _help(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("\b"):
            title, *examples = paragraph.removeprefix("\b").strip().splitlines()
            yield from (title, "", "```text", *(line.strip() for line in examples), "```", "")
        else:
            yield from (" ".join(paragraph.split()), "")


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return str(name) if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    if parameter.is_flag:
        return names
    return f"{names} {parameter.metavar}"


def _described(parameter: Any) -> str:
    text = str(parameter.help or "")
    if parameter.is_flag or parameter.default in (None, [], "") or callable(parameter.default):
        return text
    return f"{text} Default: {getattr(parameter.default, 'value', parameter.default)}."


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for page, wanted in pages().items():
        page.write_text(wanted)
        print(page.relative_to(ROOT))
