"""What every listing can do: a table, JSON, and to look again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import terminal


@dataclass(frozen=True, slots=True)
class Listing:
    """What one look found.

    values: what --json prints. empty: what to say where there are no rows.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    values: Sequence[dict[str, Any]]
    empty: str


def show(
    look: Callable[[], Listing], as_json: bool, watch: float | None, *, lines: bool = False
) -> None:
    """Print what a look finds; look again every ``watch`` seconds, until interrupted.

    lines: whether --json prints an object to a line, instead of one array.
    """
    if watch is not None:
        _watch(look, as_json, watch)
        return
    found = look()
    if as_json and lines:
        for value in found.values:
            terminal.print_json(value)
    elif as_json:
        terminal.print_json(found.values)
    elif found.rows:
        terminal.print_table(found.headers, found.rows)
    else:
        terminal.note(found.empty)


def _watch(look: Callable[[], Listing], as_json: bool, seconds: float) -> None:
    """Ctrl-C is how it ends well; whoever reads a pipe may also just go away."""
    try:
        if not as_json and terminal.console().is_terminal:
            _on_screen(look, seconds)
        while True:
            found = look()
            if as_json:
                terminal.print_json(found.values)
            elif found.rows:
                terminal.print_table(found.headers, found.rows)
            else:
                print(found.empty)
            terminal.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


def _on_screen(look: Callable[[], Listing], seconds: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=terminal.console(), screen=True, auto_refresh=False) as live:
        while True:
            found = look()
            shown = terminal.table(found.headers, found.rows) if found.rows else Text(found.empty)
            live.update(shown, refresh=True)
            time.sleep(seconds)
