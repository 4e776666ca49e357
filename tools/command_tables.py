"""The commands of ``fdbq``, as the page of the command line has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fdbqueue.cli.main import command

SHARED = {"--json", "--watch", "--csv", "--max", "--after", "--dry-run", "--yes"}
CHOICE = [
    "--match",
    "--level",
    "--reason",
    "--error",
    "--since",
    "--until",
    "--state",
    "--all",
    "--queue",
]
"""Options that the page describes once, for all commands that have them."""


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, child in group.commands.items():
        if getattr(child, "commands", None):
            yield from commands(child, f"{path} {name}")
        else:
            yield f"{path} {name}", child


def table() -> str:
    """A row for each command: how it is called, what it does, and the options of its own."""
    lines = ["| command | what it does | options |", "|---|---|---|"]
    for path, each in commands(command(), "fdbq"):
        arguments = [
            one.metavar if one.required else f"[{one.metavar}]"
            for one in each.params
            if one.param_type_name == "argument"
        ]
        options = [max(one.opts, key=len) for one in each.params if one.opts[0].startswith("-")]
        chooses = set(CHOICE) <= set(options)
        own = [
            one for one in options if one not in {*SHARED, "--help", *(CHOICE if chooses else ())}
        ]
        told = [*(["*choice*"] if chooses else []), *(f"`{one}`" for one in own)]
        summary = " ".join(each.help.split("\n\n")[0].split()).partition(". ")[0].rstrip(".:")
        lines.append(f"| `{' '.join([path, *arguments])}` | {summary} | {' '.join(told)} |")
    return "\n".join(lines) + "\n"
