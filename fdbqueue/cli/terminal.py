"""What a person sees: tables, progress and errors.

Nothing that comes from a message reaches a terminal as it is.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# rich is imported where it is used: half of the commands, and --json, do without.

UNLIMITED_WIDTH = 100_000
SHOWN_CHARACTERS = 2_000
NARROWEST = 12
AGAIN_SECONDS = 0.005
TURN_SECONDS = 0.5


class Refused(Exception):
    """Raised to end a command with one line on standard error; 2 says that the input was wrong."""

    def __init__(self, text: str, exit_code: int = 2) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Exit(Exception):
    """Raised to end a command that has said all there is to say, with an exit code."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Ended(BaseException):
    """Raised in the main thread where a signal is to end the program."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ending() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``Ended`` meanwhile, so that things are left in order."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Ended(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pause(seconds: float) -> None:
    """Sleep, in short turns: a signal that comes just before one, or meets another thread, ends
    none, and its handler runs after it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, TURN_SECONDS))


def prepare() -> None:
    """Make sure that no character can make printing fail, and that nobody prints a traceback."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = lambda failed: _unheard(failed.exc_value)
    threading.excepthook = lambda failed: _unheard(failed.exc_value)


closed: set[int] = set()
"""Which of the standard descriptors were closed when the program began."""


def _open_closed() -> None:
    """Let closed descriptors lead to nowhere: the next file, maybe the store, would get them."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


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
    shown = visible(payload[: 4 * SHOWN_CHARACTERS])
    if len(payload) <= 4 * SHOWN_CHARACTERS and len(shown) <= SHOWN_CHARACTERS:
        return shown
    return f"{shown[:SHOWN_CHARACTERS]}… ({len(payload):,} bytes)"


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


def width() -> int | None:
    """The columns of the terminal that is printed to; None where it is none."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Container[str] = ()
) -> None:
    """Rows below headers, see ``table``. A pipe gets them in full."""
    print("\n".join(table(headers, rows, numbers, width())))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Container[str] = (),
    room: int | None = None,
) -> list[str]:
    """The lines of a table: the headers, a rule, and the rows.

    numbers: the headers of columns whose texts are numbers; these and integers stand to the right.
    room: columns that a line has, at most; the last column gives way first, and then the widest.
    """
    texts = [[cell(value) for value in row] for row in rows]
    right = [isinstance(v, int) or h in numbers for h, v in zip(headers, rows[0], strict=True)]
    widths = [max(map(columns, column)) for column in zip(headers, *texts, strict=True)]
    if room is not None:
        widths = fitted(widths, room)
    rule = "-" * (sum(widths) + len(widths) - 1)
    return [_line(headers, widths, right), rule, *(_line(row, widths, right) for row in texts)]


def fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns that together have room: the last gives way first, then the widest.

    The first says what a row is about: it gives way when no other can.
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
        cells.append(" " * (room - columns(shown)) + shown if number else filled(shown, room))
    return " ".join(cells).rstrip()


def filled(text: str, room: int, space: str = " ") -> str:
    """A text that takes all of the room: cut, or with spaces behind it."""
    shown = cut(text, room)
    return shown + space * (room - columns(shown))


def cut(text: str, room: int, mark: str = "…") -> str:
    """A text if it has room, else its beginning, and the mark."""
    if columns(text) <= room:
        return text
    taken = columns(mark)
    for n, character in enumerate(text):
        taken += columns(character)
        if taken > room:
            return f"{text[:n]}{mark}"
    return text


def columns(text: str) -> int:
    """How many columns of a terminal a visible text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in ("W", "F") else 1 for c in text)


def print_fields(named: Iterable[tuple[str, object]]) -> None:
    """Names and values, one to a line."""
    print("\n".join(fields(named)))


def fields(named: Iterable[tuple[str, object]]) -> list[str]:
    """Lines of a name and a value each."""
    shown = [(visible(name), value) for name, value in named]
    longest = max(columns(name) for name, _ in shown)
    return [f"{filled(name, longest)}  {cell(value)}" for name, value in shown]


def cell(value: object) -> str:
    """A value as people read it, harmless in any terminal."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


class _NoProgress:
    """What stands for a progress bar where nobody would see one."""

    task_ids: Sequence[Any] = (0,)

    def __enter__(self) -> _NoProgress:
        return self

    def __exit__(self, *failed: object) -> None:
        pass

    def update(self, task: int, **fields: object) -> None:
        pass


def progress(unit: str, total: int | None) -> Progress | _NoProgress:
    """A progress bar on standard error, if that is a terminal. ``done`` is a field to update.

    total: what the work amounts to, in bytes or messages, if it is known.
    """
    if not sys.stderr.isatty():
        return _NoProgress()
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    parts: list[Any] = [BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    made = Progress(
        SpinnerColumn(),
        *(parts if total else []),
        TextColumn(f"{{task.fields[done]:,}} {unit}"),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
    )
    made.add_task("", total=total, done=0)
    return made


def confirm(question: str, yes: bool) -> None:
    """Go on only if the user says so; ``yes`` says so in advance."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused(f"{question} Say so with --yes")
    import typer

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
