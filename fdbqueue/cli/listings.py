"""What every listing can do: text for people, JSON, and to look again and again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from ..values.records import record
from . import terminal

T = TypeVar("T")


class View(Protocol):
    """What one look found; ``empty`` is what to say where that is nothing, and else None."""

    @property
    def empty(self) -> str | None: ...
    @property
    def more(self) -> str | None:
        """What to say where this is not all."""

    @property
    def json(self) -> Any:
        """What --json prints."""

    def lines(self, width: int | None) -> list[str]:
        """What people see, in a terminal of that width or in a pipe."""


@record
class Listing:
    """Rows of a table. values: what --json prints. nothing: what to say where there are no rows.

    more: what to say where there are more than these.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    values: Sequence[dict[str, Any]]
    nothing: str
    more: str | None = None

    @property
    def empty(self) -> str | None:
        return None if self.rows else self.nothing

    @property
    def json(self) -> Any:
        return self.values

    def lines(self, width: int | None) -> list[str]:
        return terminal.table(self.headers, self.rows, room=width)


@record
class Fields:
    """One thing and what is known of it. value: what --json prints. below: a table that follows."""

    fields: Sequence[tuple[str, object]]
    value: dict[str, Any]
    below: Listing | None = None
    more: str | None = None

    @property
    def empty(self) -> str | None:
        return None

    @property
    def json(self) -> Any:
        return self.value

    def lines(self, width: int | None) -> list[str]:
        found = terminal.fields(self.fields)
        if self.below is not None and self.below.rows:
            found += ["", *self.below.lines(width)]
        return found


def first(found: Iterable[T], most: int | None) -> tuple[list[T], bool]:
    """The first ``most`` of what is found, and whether there are more; all of them where None."""
    if most is None or most > sys.maxsize - 1:
        return [*found], False
    some = list(islice(found, most + 1))
    return some[:most], len(some) > most


def page(
    found: Sequence[T], name: Callable[[T], str], noun: str, most: int | None, after: str | None
) -> tuple[list[T], str | None]:
    """The first ``most`` behind the one named ``after``, and what to say where there are more."""
    if after is not None:
        names = [name(each) for each in found]
        if after not in names:
            raise terminal.Refused(f"--after {after!r}: there is no such {noun} in the list", 1)
        found = found[names.index(after) + 1 :]
    shown, cut = first(found, most)
    return shown, more(noun, len(shown), name(shown[-1]), len(found)) if cut else None


def more(noun: str, shown: int, after: str, total: int | None = None) -> str:
    """What to say where a listing is cut; the same everywhere."""
    of = "" if total is None or total <= shown else f" of {total:,}"
    return (
        f"the first {terminal.count(shown, noun)}{of}: there are more; "
        f"--after {shlex.quote(after)} goes on, --max shows more at once"
    )


def show(
    look: Callable[[], View], as_json: bool, watch: float | None, as_csv: bool = False
) -> None:
    """Print what a look finds; look again every ``watch`` seconds, until interrupted."""
    if as_csv:
        if as_json or watch is not None:
            raise terminal.Refused("--csv goes neither with --json nor with --watch")
        found = look()
        print_csv(found.json)
        if found.more is not None:
            terminal.note(found.more)
        return
    if watch is not None:
        _watch(look, as_json, watch)
        return
    found = look()
    if as_json and isinstance(found.json, list):
        print_array(found.json)
    elif as_json:
        terminal.print_json(found.json)
    elif found.empty is not None:
        terminal.note(found.empty)
    else:
        print("\n".join(found.lines(terminal.width())))
    if found.more is not None:
        terminal.flush()
        terminal.note(found.more)


def print_csv(values: Iterable[dict[str, Any]]) -> None:
    """Print values as CSV, a line each, below the names that any of them has.

    What has parts becomes a column for each: ``header.region``, ``death.reason``.
    """
    import csv

    rows = [dict(_flat(each)) for each in values]
    names = [*dict.fromkeys(name for row in rows for name in row)]
    if names:
        writer = csv.DictWriter(sys.stdout, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


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


def print_array(values: Iterable[Any]) -> int:
    """Print a JSON array with each value on a line of its own, as they come; returns how many."""
    printed = 0
    for value in values:
        print("," if printed else "[", terminal.dumps(value), sep="\n", end="")
        printed += 1
    print("\n]" if printed else "[]")
    return printed


def _watch(look: Callable[[], View], as_json: bool, seconds: float) -> None:
    """Ctrl-C is how it ends well; whoever reads a pipe may also just go away."""
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
            terminal.pause(seconds)
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
            terminal.pause(seconds)
