"""Listings: tables for people, JSON and CSV for programs, once or repeatedly."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

import fdbqueue

from ..values.text import visible
from . import terminal
from .parameters import ListOutput, Output, PageOptions

T = TypeVar("T")
P = TypeVar("P")

PAGE = 1_000
"""So many any list of the package gives at once."""
LISTED = 100
"""So many elements a list that may be long shows unless told otherwise."""


class View(Struct, frozen=True):
    """What a command shows.

    lines: text for a terminal of some width, or for a pipe. json: what --json prints.
    empty: a note instead, if there is nothing to show. more: a note if this is not all.
    """

    lines: Callable[[int | None], list[str]]
    json: Any
    empty: str | None = None
    more: str | None = None


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    values: Sequence[dict[str, Any]],
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

    def lines(width: int | None) -> list[str]:
        blocks = [[*([""] if n else []), *each.lines(width)] for n, each in enumerate(some)]
        return [line for block in blocks for line in block]

    return View(lines, first.json, None if some else first.empty, first.more)


def first(found: Iterable[T], limit: int | None) -> tuple[list[T], bool]:
    """The first ``limit`` elements, and whether there are more; None: all of them."""
    # `islice` takes no larger number.
    if limit is None or limit > sys.maxsize - 1:
        return [*found], False
    some = list(islice(found, limit + 1))
    return some[:limit], len(some) > limit


def listing(
    read: Callable[[int, P | None], Sequence[T]],
    place: Callable[[T], P],
    row: Callable[[T, int], Sequence[object]],
    json: Callable[[T], dict[str, Any]],
    headers: Sequence[str],
    noun: str,
    nothing: str,
    wanted: PageOptions,
    after: P | None = None,
    name: Callable[[T], str] | None = None,
) -> View:
    """A page of a list that may be long, by default of ``LISTED`` elements.

    read: up to so many behind a place. row: that of an element in the table, at a time by the wall
    clock in milliseconds. name: what --after takes, where that is not the place.
    """
    most, found = wanted.limit or LISTED, list[T]()
    while len(found) <= most:
        asked = min(most + 1 - len(found), PAGE)
        some = read(asked, place(found[-1]) if found else after)
        found += some
        if len(some) < asked:
            break
    shown, now_ms = found[:most], fdbqueue.Clock().wall_ms()
    return table(
        headers,
        [row(each, now_ms) for each in shown],
        [json(each) for each in shown],
        nothing,
        more(noun, most, str((name or place)(shown[-1]))) if len(found) > most else None,
    )


def page(
    found: Sequence[T], name: Callable[[T], str], noun: str, wanted: PageOptions
) -> tuple[list[T], str | None]:
    """The elements on a page, and a note if there are more."""
    if wanted.after is not None:
        names = [name(each) for each in found]
        if wanted.after not in names:
            raise terminal.CommandError(f"--after {wanted.after!r}: the list has no such {noun}", 1)
        found = found[names.index(wanted.after) + 1 :]
    shown, cut = first(found, wanted.limit)
    return shown, more(noun, len(shown), name(shown[-1]), len(found)) if cut else None


def more(noun: str, shown: int, last: str, total: int | None = None) -> str:
    """The note below a listing that is cut."""
    of = "" if total is None or total <= shown else f" of {total:,}"
    return (
        f"the first {terminal.count(shown, noun)}{of}: there are more; "
        f"continue with --after {shlex.quote(last)}, or raise --max"
    )


def show(look: Callable[[], View], output: Output) -> None:
    """Print what ``look`` finds. With --watch, repeat it until interrupted."""
    as_csv = isinstance(output, ListOutput) and output.as_csv
    if as_csv and (output.as_json or output.watch is not None):
        raise terminal.CommandError("--csv cannot be combined with --json or --watch")
    if output.watch is not None:
        _watch(look, output.as_json, output.watch)
        return
    found = look()
    if as_csv:
        _print_csv(found.json)
    elif output.as_json and isinstance(found.json, list):
        print_array(found.json)
    elif output.as_json:
        terminal.print_json(found.json)
    elif found.empty is not None:
        terminal.note(found.empty)
    else:
        print("\n".join(found.lines(terminal.width())))
    if found.more is not None:
        # Else the note on standard error could stand above the end of the listing.
        terminal.flush()
        terminal.note(found.more)


def print_all(view: Callable[[Sequence[T]], View], found: Iterable[T], empty: str) -> None:
    """Print a long listing as it is read, in tables of a page each."""
    left, printed = iter(found), False
    while some := [*islice(left, PAGE)]:
        print("\n".join(view(some).lines(terminal.width())))
        terminal.flush()
        printed = True
    if not printed:
        terminal.note(empty)


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


def print_array(values: Iterable[Any]) -> None:
    """Print a JSON array as its values arrive, one value per line."""
    printed = False
    for value in values:
        print("," if printed else "[", terminal.dumps(value), sep="\n", end="")
        printed = True
    print("\n]" if printed else "[]")


def print_results(results: Sequence[dict[str, Any]]) -> None:
    """Print as JSON what was done to each queue: one object, or an array for several queues."""
    if len(results) == 1:
        terminal.print_json(results[0])
    else:
        print_array(results)


def _watch(look: Callable[[], View], as_json: bool, seconds: float) -> None:
    """Print again and again; Ctrl-C ends it without an error."""
    try:
        if not as_json and terminal.width() is not None:
            _on_screen(look, seconds)
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
        return [terminal.visible(found.empty)]
    return [*found.lines(width), *([] if found.more is None else [terminal.visible(found.more)])]


def _on_screen(look: Callable[[], View], seconds: float) -> None:
    from rich.text import Text

    from .screen import Screen

    with Screen() as screen:
        while True:
            shown = _lines(look(), screen.size[0])
            screen.draw(Text(line, no_wrap=True, overflow="crop") for line in shown)
            terminal.sleep(seconds)
