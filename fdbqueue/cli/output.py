"""What commands print: tables for people, JSON and CSV for programs, once or repeatedly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from msgspec import Struct
from typer import Option

from ..values.text import visible
from . import durations, terminal

AsJson = Annotated[bool, Option("--json", help="Print JSON.")]


class View(Struct, frozen=True):
    """What a command shows.

    lines: text for a terminal of some width, or for a pipe. json: what --json prints.
    empty: a note instead, if there is nothing to show. more: a note if this is not all.
    """

    lines: Callable[[int | None], Iterable[str]]
    json: Any
    empty: str | None = None
    more: str | None = None


class Result(Struct, frozen=True):
    """What a command did. json: what --json prints; a list is of several queues.

    text: the same for people: a line, or several. note: a remark beside it, for people only.
    failed: raised once the rest is printed.
    """

    json: Any
    text: str | Sequence[str]
    note: str = ""
    failed: Exception | None = None


@dataclass
class ResultOutput:
    """How a command tells what it did."""

    as_json: AsJson = False

    def show(self, done: Result | Iterator[Result]) -> None:
        """Print the results of a command, each as soon as it is there."""
        for each in [done] if isinstance(done, Result) else done:
            lines = [each.text] if isinstance(each.text, str) else each.text
            if self.as_json and each.json:
                _print_values(each.json)
            elif lines and not self.as_json:
                print("\n".join(map(visible, lines)))
            if each.note and not self.as_json:
                terminal.note(each.note)
            if each.failed is not None:
                raise each.failed


@dataclass
class ViewOutput:
    """How a command shows one thing."""

    as_json: AsJson = False
    watch: float | None = durations.option(
        "Repeat until Ctrl-C, or q. With --json, print one array per line.", least=0.1
    )

    def show(self, look: Callable[[], View], as_csv: bool = False) -> None:
        """Print what ``look`` finds. With --watch, repeat it until interrupted."""
        if as_csv and (self.as_json or self.watch is not None):
            raise terminal.CommandError("--csv cannot be combined with --json or --watch")
        if self.watch is not None:
            watch(look, self.watch, self.as_json)
            return
        found = look()
        if as_csv:
            _print_csv(found.json)
        elif self.as_json:
            _print_values(found.json, always_array=True)
        elif found.empty is not None:
            terminal.note(found.empty)
        else:
            for line in found.lines(terminal.width()):
                print(line)
        if found.more is not None:
            # Else the note on standard error could stand above the end of the listing.
            terminal.flush()
            terminal.note(found.more)


@dataclass
class ListOutput(ViewOutput):
    """How a listing is shown."""

    as_csv: bool = Option(
        False, "--csv", help="Print CSV with a header line: the JSON fields, flattened."
    )

    def show(self, look: Callable[[], View], as_csv: bool = False) -> None:
        super().show(look, self.as_csv)


Done: TypeAlias = Annotated[Result | Iterator[Result], ResultOutput]
"""What a command returns that does something."""
Shown: TypeAlias = Annotated[Callable[[], View], ViewOutput]
"""What a command returns that shows one thing."""
Listed: TypeAlias = Annotated[Callable[[], View], ListOutput]
"""What a command returns that lists things."""


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    values: Iterable[dict[str, Any]],
    nothing: str,
    more: str | None = None,
) -> View:
    """A table, and a JSON value for each of its elements."""
    empty = None if rows else nothing
    return View(lambda width: terminal.table(headers, rows, room=width), values, empty, more)


def fields(named: Sequence[tuple[str, object]], value: dict[str, Any], *below: View) -> View:
    """One thing with its fields, and what has something below them."""
    return stacked(View(lambda width: terminal.fields(named), value), *below)


def stacked(first: View, *others: View) -> View:
    """A listing, and others below it; those that are empty are left out."""
    some = [each for each in (first, *others) if each.empty is None]

    def lines(width: int | None) -> Iterator[str]:
        for n, each in enumerate(some):
            yield from [""] * bool(n)
            yield from each.lines(width)

    return View(lines, first.json, None if some else first.empty, first.more)


def _print_csv(values: Iterable[dict[str, Any]]) -> None:
    """Print values as CSV, with a column for each name that any value has.

    Nested objects become columns such as ``header.region`` and ``death.reason``.
    """
    import csv

    rows = [dict(_flat(each)) for each in values]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    if names:
        writer = csv.DictWriter(sys.stdout, names, restval="", lineterminator="\n")
        writer.writerow({name: _cell(name) for name in names})
        writer.writerows({name: _cell(each) for name, each in row.items()} for row in rows)


def _cell(value: object) -> object:
    """A cell that controls no terminal, and that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    text = "\n".join("\t".join(map(visible, line.split("\t"))) for line in value.split("\n"))
    # A spreadsheet takes an apostrophe for "this is text"; without it, a payload could be a
    # formula.
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, each in value.items():
        if name == "backoff" or isinstance(each, list):
            yield f"{prefix}{name}", terminal.dumps(each)
        elif isinstance(each, dict):
            yield from _flat(each, f"{prefix}{'header' if name == 'headers' else name}.")
        elif isinstance(each, bool):
            yield f"{prefix}{name}", "true" if each else "false"
        else:
            yield f"{prefix}{name}", each


def _print_values(values: Any, always_array: bool = False) -> None:
    """Print an object, or an array as its values arrive, one per line.

    always_array: also of a single value, which otherwise is printed as it is.
    """
    if isinstance(values, dict):
        terminal.print_json(values)
        return
    if not always_array and len(values) == 1:
        terminal.print_json(values[0])
        return
    printed = False
    for value in values:
        print("," if printed else "[", terminal.dumps(value), sep="\n", end="")
        printed = True
    print("\n]" if printed else "[]")


def watch(look: Callable[[], View], seconds: float, as_json: bool = False) -> None:
    """Print again and again; Ctrl-C ends it without an error, and so does q on a terminal."""
    try:
        if not as_json and terminal.width() is not None:
            _on_screen(look, seconds)
            return
        while True:
            found = look()
            if as_json:
                terminal.print_json(found.json)
            else:
                print("\n".join(_lines(found, None)))
            terminal.flush()
            terminal.sleep(seconds)
    except KeyboardInterrupt:
        return


def _lines(found: View, width: int | None) -> list[str]:
    if found.empty is not None:
        return [visible(found.empty)]
    return [*found.lines(width), *([] if found.more is None else [visible(found.more)])]


def _on_screen(look: Callable[[], View], seconds: float) -> None:
    from rich.text import Text

    from .screen import Screen

    with Screen() as screen:
        while True:
            shown = _lines(look(), screen.width)
            screen.draw(Text(line, no_wrap=True, overflow="crop") for line in shown)
            if screen.quits_within(seconds):
                return
