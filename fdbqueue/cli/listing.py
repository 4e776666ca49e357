"""What every listing can do: text for people, JSON, and to look again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import terminal


class View(Protocol):
    """What one look found; ``empty`` is what to say where that is nothing, and else None."""

    @property
    def empty(self) -> str | None: ...
    @property
    def json(self) -> Any:
        """What --json prints."""

    def lines(self, width: int | None) -> list[str]:
        """What people see, in a terminal of that width or in a pipe."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a table. values: what --json prints. nothing: what to say where there are no rows."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    values: Sequence[dict[str, Any]]
    nothing: str

    @property
    def empty(self) -> str | None:
        return None if self.rows else self.nothing

    @property
    def json(self) -> Any:
        return self.values

    def lines(self, width: int | None) -> list[str]:
        return terminal.table(self.headers, self.rows, room=width)


@dataclass(frozen=True, slots=True)
class Fields:
    """One thing and what is known of it. value: what --json prints. below: a table that follows."""

    fields: Sequence[tuple[str, object]]
    value: dict[str, Any]
    below: Listing | None = None

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


def show(
    look: Callable[[], View], as_json: bool, watch: float | None, *, lines: bool = False
) -> None:
    """Print what a look finds; look again every ``watch`` seconds, until interrupted.

    lines: whether --json prints an object to a line, instead of one array.
    """
    if watch is not None:
        _watch(look, as_json, watch)
        return
    found = look()
    if as_json and lines:
        for value in found.json:
            terminal.print_json(value)
    elif as_json:
        terminal.print_json(found.json)
    elif found.empty is not None:
        terminal.note(found.empty)
    else:
        print("\n".join(found.lines(terminal.width())))


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
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _lines(found: View, width: int | None) -> list[str]:
    return found.lines(width) if found.empty is None else [terminal.visible(found.empty)]


def _on_screen(look: Callable[[], View], seconds: float) -> None:
    from rich.text import Text

    from .screen import Screen

    with Screen() as screen:
        while True:
            shown = _lines(look(), screen.size[0])
            screen.draw(Text(line, no_wrap=True, overflow="crop") for line in shown)
            time.sleep(seconds)
