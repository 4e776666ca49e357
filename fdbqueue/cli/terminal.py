"""What a person sees: tables, progress and errors.

Nothing that comes from a message reaches a terminal as it is.
"""

from __future__ import annotations

import _thread
import json
import sys
import threading
from collections.abc import Container, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

# rich is imported where it is used: half of the commands, and --json, do without.

UNLIMITED_WIDTH = 100_000
SHOWN_CHARACTERS = 2_000
AGAIN_SECONDS = 0.005


class Refused(Exception):
    """Raised to end a command with one line on standard error; 2 says that the input was wrong."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def prepare() -> None:
    """Make sure that no character can make printing fail, and that nobody prints a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = lambda failed: _unheard(failed.exc_value)
    threading.excepthook = lambda failed: _unheard(failed.exc_value)


def _unheard(error: BaseException | None) -> None:
    """What to do with an error that nobody can catch: in a destructor, say, or a thread."""
    if isinstance(error, KeyboardInterrupt):
        # It is for the main thread, which may have run a destructor; raised here it would be lost.
        threading.Timer(AGAIN_SECONDS, _thread.interrupt_main).start()
    elif error is not None:
        complain_of(error)


def visible(text: str | bytes) -> str:
    """Text that is harmless in any terminal: what is not printable is written as an escape.

    Invalid UTF-8, control characters, terminal escapes, line ends, and the marks that change the
    direction of writing become ``\\x1b``, ``\\n``, ``\\u202e`` and so on.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def excerpt(payload: bytes) -> str:
    """The beginning of a payload, visible; all of it if it is not long."""
    shown = visible(payload[: 4 * SHOWN_CHARACTERS])[:SHOWN_CHARACTERS]
    return shown if len(payload) <= len(shown) else f"{shown}… ({len(payload):,} bytes)"


def complain(text: str) -> None:
    """One line on standard error."""
    print(f"fdbq: {visible(text)}", file=sys.stderr)


def complain_of(error: BaseException) -> None:
    """One line on standard error, for what should not happen."""
    complain(f"internal error, please report it: {type(error).__name__}: {error}")


def note(text: str) -> None:
    """A remark beside the output, on standard error."""
    print(visible(text), file=sys.stderr)


def dumps(value: object) -> str:
    """JSON in pure ASCII without control characters."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def flush() -> None:
    """Let whoever reads the output have it."""
    sys.stdout.flush()


def print_json(value: object) -> None:
    """One JSON value, one line."""
    print(dumps(value))


def console(*, stderr: bool = False) -> Console:
    """A console; one that is not a terminal has room for everything."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = UNLIMITED_WIDTH
    return made


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Container[str] = ()
) -> None:
    """Rows below headers, see ``table``; a pipe gets them in full, and sooner."""
    if sys.stdout.isatty():
        console().print(table(headers, rows, numbers))
        return
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    right = [*map(_is_number, headers, rows[0], repeat(numbers))]
    print(_line(headers, widths, right))
    print("-" * (sum(widths) + len(widths) - 1))
    for row in texts:
        print(_line(row, widths, right))


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        text.rjust(width) if number else text.ljust(width)
        for text, width, number in zip(texts, widths, right, strict=True)
    )
    return " ".join(padded).rstrip()


def _is_number(header: str, value: object, numbers: Container[str]) -> bool:
    return isinstance(value, int) or header in numbers


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Container[str] = ()
) -> Table:
    """Rows below headers. The last column gives way to the width.

    numbers: the headers of columns whose texts are numbers; these and integers stand to the right.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for header, value in zip(headers, rows[0], strict=True):
        # To rich, a column that wraps is one to make narrower; its texts do not wrap, though.
        narrows = header == headers[-1]
        justify: Literal["right", "left"] = (
            "right" if _is_number(header, value, numbers) else "left"
        )
        made.add_column(header, justify=justify, no_wrap=not narrows)
    for row in rows:
        made.add_row(*(Text(cell(value), no_wrap=True, overflow="ellipsis") for value in row))
    return made


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line."""
    shown = [(visible(name), value) for name, value in fields]
    width = max(len(name) for name, _ in shown)
    for name, value in shown:
        print(f"{name:<{width}}  {cell(value)}")


def cell(value: object) -> str:
    """A value as people read it, harmless in any terminal."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


def progress(unit: str, total: int | None) -> Progress:
    """A progress bar on standard error, if that is a terminal. ``done`` is a field to update.

    total: what the work amounts to, in bytes or messages, if it is known.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    out = console(stderr=True)
    parts: list[Any] = [BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    made = Progress(
        SpinnerColumn(),
        *(parts if total else []),
        TextColumn(f"{{task.fields[done]:,}} {unit}"),
        TimeElapsedColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )
    made.add_task("", total=total, done=0)
    return made


def confirm(question: str, yes: bool) -> None:
    """Go on only if the user says so; ``yes`` says so in advance."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{question} Say so with --yes")
    if not typer.confirm(visible(question), err=True):
        raise Refused("nothing was changed", exit_code=1)


def age(milliseconds: int) -> str:
    """``950 ms``, ``12 s``, ``3 m``, ``5 h``, ``2 d``: a time in four characters or so."""
    if milliseconds < 1_000:
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def count(number: int, noun: str) -> str:
    """``1 message``, ``2,000 messages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
