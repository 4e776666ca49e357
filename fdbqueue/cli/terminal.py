"""Output for people: tables, progress, prompts and errors.

Text from a message never reaches a terminal unescaped.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from types import FrameType
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import typer

from ..values.text import age as age
from ..values.text import count as count
from ..values.text import excerpt as _excerpt
from ..values.text import since as since
from ..values.text import visible as visible

if TYPE_CHECKING:
    from rich.console import Console

# rich is slow to import and most commands never need it, so functions import it.

UNLIMITED_WIDTH = 100_000
SHOWN_CHARACTERS = 2_000
NARROWEST = 12
INTERRUPT_AGAIN_SECONDS = 0.005
LONGEST_SLEEP_SECONDS = 0.5


class CommandError(Exception):
    """Raised to end a command with one line on standard error; exit code 2 means invalid input."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Terminated(BaseException):
    """Raised in the main thread by a signal that ends the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def termination_raises() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``Terminated`` in this block, so that it can clean up."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    before = {
        number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def sleep(seconds: float) -> None:
    """Sleep in short steps.

    A signal that arrives just before a sleep, or in another thread, does not interrupt it; its
    handler runs after the step.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_SLEEP_SECONDS))


def prepare() -> None:
    """Make printing safe for any character, and replace tracebacks by one-line errors."""
    # Before any other file is opened, which would get their numbers.
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # Destructors and threads would print tracebacks beside the one line that an error is.
    sys.unraisablehook = lambda failed: _uncaught(failed.exc_value)
    threading.excepthook = lambda failed: _uncaught(failed.exc_value)


closed: set[int] = set()
"""The standard descriptors that were closed when the program started."""


def _open_closed() -> None:
    """Open closed descriptors on /dev/null, so that no other file, maybe the store, gets them."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _uncaught(error: BaseException | None) -> None:
    """Handle an error that no caller can catch: one of a destructor or a thread."""
    if isinstance(error, KeyboardInterrupt):
        # A destructor swallowed it: interrupt the main thread again.
        threading.Timer(INTERRUPT_AGAIN_SECONDS, _thread.interrupt_main).start()
    elif error is not None:
        print_internal_error(error)


def excerpt(payload: bytes) -> str:
    """The start of a payload as visible text, or all of it if it is short."""
    return _excerpt(payload, SHOWN_CHARACTERS)


def print_error(text: str) -> None:
    """Print one line on standard error."""
    print(f"fdbq: {visible(text)}", file=sys.stderr)


def print_internal_error(error: BaseException) -> None:
    """Print one line on standard error about a bug."""
    print_error(f"internal error, please report it: {type(error).__name__}: {error}")


def note(text: str) -> None:
    """Print a remark on standard error."""
    print(visible(text), file=sys.stderr)


def dumps(value: object) -> str:
    """JSON in ASCII without control characters."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def flush() -> None:
    """Flush standard output."""
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print a JSON value on one line."""
    print(dumps(value))


def console(*, stderr: bool = False) -> Console:
    """A rich console, of unlimited width unless it is a terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = UNLIMITED_WIDTH
    return made


def width() -> int | None:
    """The width of the terminal that standard output goes to; None if it is not a terminal."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Container[str] = ()
) -> None:
    """Print a table, see ``table``. In a pipe no cell is cut."""
    print("\n".join(table(headers, rows, numbers, width())))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Container[str] = (),
    room: int | None = None,
) -> list[str]:
    """The lines of a table: headers, a rule, and rows. Integers are aligned to the right.

    numbers: headers of further columns that are aligned to the right.
    room: the width of the table; the last column is cut first, then the widest.
    """
    texts = [[cell(value) for value in row] for row in rows]
    right = [isinstance(v, int) or h in numbers for h, v in zip(headers, rows[0], strict=True)]
    widths = [max(map(columns, column)) for column in zip(headers, *texts, strict=True)]
    if room is not None:
        widths = fitted(widths, room)
    rule = "-" * (sum(widths) + len(widths) - 1)
    return [_line(headers, widths, right), rule, *(_line(row, widths, right) for row in texts)]


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Column widths that fit in a line. The last column shrinks first, then the widest.

    The first column identifies the row, so it shrinks only after all others.
    """
    *others, last = widths
    room = max(1, room - len(others))
    last = max(min(last, NARROWEST), min(last, room - sum(others)))
    while sum(others) + last > room and max(others, default=1) > 1:
        wide = [n for n, width in enumerate(others) if n and width > NARROWEST]
        widest = max(wide or range(len(others)), key=others.__getitem__)
        others[widest] -= 1
    return [*others, min(last, max(1, room - sum(others)))]


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = []
    for text, room, number in zip(texts, widths, right, strict=True):
        shown = cut(text, room)
        space = " " * (room - columns(shown))
        cells.append(space + shown if number else shown + space)
    return " ".join(cells).rstrip()


def cut(text: str, room: int) -> str:
    """A text, cut to a width and marked if it is longer."""
    if columns(text) <= room:
        return text
    return f"{text[: sum(taken < room for taken in accumulate(map(columns, text)))]}…"


def columns(text: str) -> int:
    """The width of a visible text in a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in ("W", "F") else 1 for c in text)


def fields(named: Iterable[tuple[str, object]]) -> list[str]:
    """Lines with one name and its value each."""
    shown = [(visible(name), value) for name, value in named]
    longest = max(columns(name) for name, _ in shown)
    return [f"{name}{' ' * (longest - columns(name))}  {cell(value)}" for name, value in shown]


def cell(value: object) -> str:
    """A value as text for people, safe in any terminal."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


Update = Callable[..., None]
"""Updates a progress bar: ``done`` is printed; ``completed`` and ``total`` move the bar."""


@contextmanager
def progress(unit: str, total: int | None = None) -> Iterator[Update]:
    """Show a progress bar on standard error, if that is a terminal.

    total: the amount of work, if known.
    """
    if not sys.stderr.isatty():
        yield lambda done, **_: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts: list[Any] = [BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    columns = [
        SpinnerColumn(),
        *(parts if total else []),
        TextColumn(f"{{task.fields[done]:,}} {unit}"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None, done=0)

        def update(done: int, **changes: Any) -> None:
            bar.update(task, done=done, **{"completed": done, **changes})

        yield update


def confirm(question: str, yes: bool) -> None:
    """Ask the user, unless ``yes``; raises ``CommandError`` if the answer is no."""
    if yes:
        return
    # Never a guess: a script that forgot --yes changes nothing.
    if not sys.stdin.isatty():
        raise CommandError(f"{question} Re-run with --yes to confirm")
    if not typer.confirm(visible(question), err=True):
        raise CommandError("cancelled; nothing was changed", exit_code=1)


def ago(wall_ms: int | None, now_ms: int) -> str:
    """How long ago something happened; empty if it did not."""
    return "" if wall_ms is None else f"{age(now_ms - wall_ms)} ago"


def queues(names: Collection[str], *, quoted: bool = False) -> str:
    """Queues in a sentence: one by its name, several by their number."""
    if len(names) > 1:
        return count(len(names), "queue")
    (name,) = names
    return f"queue {name!r}" if quoted else f"queue {name}"
