"""The command line as a page of the documentation and as a manual page, from the help of fdbq."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer.main

from fdbqueue.cli.main import app

CONVENTIONS = (
    "An error is one line on standard error, starting with `fdbq:`.",
    "A DURATION is a number of seconds, or for example `250ms`, `15m`, `1h30m` or `7d`.",
    "A command that removes or moves something asks first. Use `--dry-run` to see what it would "
    "do, and `--yes` to skip the question.",
)
ENVIRONMENT = {
    "FDBQUEUE_STORE": "The store, as for `--store`.",
    "FDB_CLUSTER_FILE": "The cluster file of FoundationDB, if FDBQUEUE_STORE is not set.",
}


@dataclass(frozen=True)
class Examples:
    """Lines to type, and what stands above them."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Command:
    """One command or group of commands, as its help describes it."""

    path: str
    depth: int
    usage: str
    text: Sequence[str | Examples]
    parameters: Sequence[tuple[str, str]]
    epilog: str


def commands() -> Iterator[Command]:
    """fdbq and all its commands, each group before what is in it."""
    yield from _walk(typer.main.get_command(app), "fdbq", 0)


def _walk(command: Any, path: str, depth: int) -> Iterator[Command]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    children = getattr(command, "commands", {})
    usage = [path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    yield Command(
        path,
        depth,
        " ".join([*usage, *(["COMMAND …"] if children else [])]),
        [_paragraph(text) for text in (command.help or "").strip().split("\n\n")],
        [(_argument(argument), argument.help or "") for argument in arguments]
        + [(_option(option), _described(option)) for option in options],
        command.epilog or "",
    )
    for name, child in children.items():
        yield from _walk(child, f"{path} {name}", depth + 1)


def _paragraph(text: str) -> str | Examples:
    if not text.startswith("\b"):
        return " ".join(text.split())
    title, *lines = text.removeprefix("\b").strip().splitlines()
    return Examples(title, [line.strip() for line in lines])


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return str(name) if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    return names if parameter.is_flag else f"{names} {parameter.metavar}"


def _described(parameter: Any) -> str:
    text = str(parameter.help or "")
    if parameter.is_flag or parameter.default in (None, [], "") or callable(parameter.default):
        return text
    return f"{text} Default: {getattr(parameter.default, 'value', parameter.default)}."


# -- a page of the documentation ------------------------------------------------------------------


def markdown() -> str:
    """docs/cli.md."""
    lines = [
        "# The command line",
        "",
        "Manage queues, messages and consumers from a shell with `fdbq`.",
    ]
    lines += ["`man fdbq` shows the same where the package is installed.", ""]
    lines += [f"- {text}" for text in CONVENTIONS]
    lines += ["- [json.md](json.md) describes what `--json` prints.", ""]
    lines += ["tools/reference.py generates this page from the help of the commands.", ""]
    for command in commands():
        lines += [f"{'#' * (command.depth + 2)} {command.path}", ""]
        lines += ["```text", command.usage, "```", ""]
        for text in command.text:
            if isinstance(text, Examples):
                lines += [text.title, "", "```text", *text.lines, "```", ""]
            else:
                lines += [text, ""]
        if command.parameters:
            lines += ["| | |", "|---|---|"]
            for name, text in command.parameters:
                described = text.replace("|", "\\|")
                lines.append(f"| `{name}` | {described} |")
            lines.append("")
        if command.epilog:
            lines += [command.epilog, ""]
    return "\n".join(lines).rstrip() + "\n"


# -- a manual page --------------------------------------------------------------------------------


def manual() -> str:
    """docs/fdbq.1, in the man macros of roff (man(7))."""
    first, *others = commands()
    lines = ['.TH FDBQ 1 "" fdbqueue "User Commands"', ".SH NAME"]
    lines += [_roff(f"fdbq - {first.text[0]}".rstrip(".")), ".SH SYNOPSIS", _bold(first.usage)]
    lines += [".SH DESCRIPTION"]
    for text in (first.epilog, *CONVENTIONS):
        lines += [".PP", _roff(text)]
    lines += [".SH OPTIONS", *_parameters(first), ".SH COMMANDS"]
    for command in others:
        lines += [f".SS {_bold(command.usage)}"]
        for text in command.text:
            if isinstance(text, Examples):
                lines += [".PP", _roff(text.title), ".PP", ".RS 4", ".nf"]
                lines += [*map(_roff, text.lines), ".fi", ".RE"]
            else:
                lines += [".PP", _roff(text)]
        lines += _parameters(command)
        if command.epilog:
            lines += [".PP", _roff(command.epilog)]
    lines += [".SH ENVIRONMENT"]
    for name, text in ENVIRONMENT.items():
        lines += [".TP", _bold(name), _roff(text)]
    return "\n".join(lines) + "\n"


def _parameters(command: Command) -> Iterator[str]:
    for name, text in command.parameters:
        yield from (".TP", _bold(name), _roff(text))


def _bold(text: str) -> str:
    return rf"\fB{_roff(text)}\fR"


def _roff(text: str) -> str:
    """The text so that roff prints it as it is, but for names in backquotes, which are bold."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("…", "...")
    escaped = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
    return re.sub(r"^(?=[.'])", r"\\&", escaped)
