"""The screen of ``fdbq top``: plain values and keys in, lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fdbqueue.values.model import Depth

from ...values.records import record
from .. import terminal

FEWEST_LINES = 8
LEVEL_LINES = 2
DETAIL_LINES = 3 + LEVEL_LINES
HELP = "←→ sort by  r reverse  ↑↓ PgUp PgDn queue  / filter  ? help  q quit"
KEYS = (
    "left, right    sort by another column",
    "r              reverse the order",
    "up, down       select a queue, to see its levels and consumers",
    "PgUp, PgDn     move by ten queues",
    "/              show only queues whose names contain a text; Enter accepts, Esc clears",
    "space          update now",
    "?              this help; any key closes it",
    "q, Ctrl-C      quit",
)
PAGE = 10


@record
class Row:
    """A queue; rates are messages per second since the previous update."""

    name: str
    levels: Mapping[int, Depth]
    paused: bool = False
    rate_in: float = 0.0
    rate_out: float = 0.0
    oldest_ms: int | None = None
    consumers: Mapping[str, int] = field(default_factory=dict)

    @property
    def depth(self) -> Depth:
        """The number of messages in each state."""
        return sum(self.levels.values(), Depth())


@record
class Snapshot:
    """Everything read at one time; ``began`` is false until the first read.

    conflicts: conflicted transactions per second; None if unknown.
    """

    store: str
    at: float
    rows: Sequence[Row] = ()
    conflicts: float | None = None
    began: bool = True


class Column(NamedTuple):
    """A column: its title, width, and value, by which it sorts; and its text, if not the value."""

    title: str
    width: int
    value: Callable[[Row], Any]
    text: Callable[[Row], str] | None = None

    def cell(self, row: Row) -> str:
        """The text of a row."""
        return short(self.value(row)) if self.text is None else self.text(row)


COLUMNS = (
    Column(
        "queue",
        0,
        lambda row: row.name,
        lambda row: f"{terminal.visible(row.name)}{' (paused)' if row.paused else ''}",
    ),
    Column("ready", 8, lambda row: row.depth.ready),
    Column("delayed", 8, lambda row: row.depth.delayed),
    Column("leased", 7, lambda row: row.depth.leased),
    Column("dead", 6, lambda row: row.depth.dead),
    Column("in/s", 7, lambda row: row.rate_in),
    Column("out/s", 7, lambda row: row.rate_out),
    Column(
        "oldest",
        7,
        lambda row: -1 if row.oldest_ms is None else row.oldest_ms,
        lambda row: "" if row.oldest_ms is None else terminal.age(row.oldest_ms),
    ),
    Column("cons", 5, lambda row: sum(row.consumers.values())),
)


def short(number: float) -> str:
    """A number in at most seven characters."""
    if isinstance(number, float) and 0 < number < 10:
        return f"{number:.1f}"
    if number < 1_000_000:
        return f"{number:,.0f}"
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.2f}{unit}"
    return f"{number:,.0f}"


@dataclass(slots=True)
class Controls:
    """The user's choices: sort column and order, filter, and selected queue."""

    column: int = 1
    descending: bool = True
    selected: str = ""
    first: int = 0
    filter: str = ""
    typing: bool = False
    helping: bool = False

    def press(self, key: str, rows: Sequence[Row]) -> bool:
        """Handle a key; returns false for a key without a function."""
        if self.helping or (key == "?" and not self.typing):
            self.helping = not self.helping
            return True
        if self.typing:
            return self._type(key)
        names = [row.name for row in self.ordered(rows)]
        at = names.index(self.selected) if self.selected in names else 0
        match key:
            case "left" | "<" | "h":
                self._sort((self.column - 1) % len(COLUMNS))
            case "right" | ">" | "l":
                self._sort((self.column + 1) % len(COLUMNS))
            case "r":
                self.descending = not self.descending
            case "/":
                self.typing = True
            case "escape":
                self.filter = ""
            case "page up" if names:
                self.selected = names[max(0, at - PAGE)]
            case "page down" if names:
                self.selected = names[min(len(names) - 1, at + PAGE)]
            case "up" | "k" if names:
                self.selected = names[max(0, at - 1)]
            case "down" | "j" if names:
                self.selected = names[min(len(names) - 1, at + 1)]
            case _:
                return False
        return True

    def _type(self, key: str) -> bool:
        """Handle a key while the user types a filter."""
        if key in ("\r", "\n", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key in ("\x7f", "\b"):
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key
        return True

    def _sort(self, column: int) -> None:
        self.column = column
        self.descending = column != 0

    def ordered(self, rows: Sequence[Row]) -> list[Row]:
        """The matching rows in order; equal ones by name."""
        by_name = sorted((row for row in rows if self.filter in row.name), key=lambda row: row.name)
        return sorted(by_name, key=COLUMNS[self.column].value, reverse=self.descending)

    def visible(self, rows: Sequence[Row], height: int) -> list[Row]:
        """The rows that fit on the screen, the selected one among them."""
        ordered = self.ordered(rows)
        room = max(1, height - 4 - DETAIL_LINES)
        if ordered and self.selected not in {row.name for row in ordered}:
            self.selected = ordered[0].name
        at = next((n for n, row in enumerate(ordered) if row.name == self.selected), 0)
        self.first = min(max(self.first, at - room + 1), at, max(0, len(ordered) - room))
        return ordered[self.first : self.first + room]


class Line(NamedTuple):
    """A line of the screen and its style."""

    text: str
    style: str = ""


def draw(controls: Controls, snapshot: Snapshot, width: int, height: int, now: float) -> list[Line]:
    """The screen: exactly ``height`` lines of at most ``width`` characters."""
    if controls.helping:
        shown = [Line("fdbq top", "bold"), Line(""), *(Line(text) for text in KEYS)]
        shown += [Line("")] * height
        return [Line(terminal.cut(line.text, width, ""), line.style) for line in shown[:height]]
    rows = controls.visible(snapshot.rows, height)
    lines = [_title(snapshot, now), _totals(snapshot), Line(_heading(controls, width), "reverse")]
    lines += [
        Line(
            _aligned([each.cell(row) for each in COLUMNS], width),
            "bold" if row.name == controls.selected else "dim" * row.paused,
        )
        for row in rows
    ]
    if snapshot.rows and not rows:
        lines.append(Line("no queue matches", "dim"))
    if not snapshot.rows:
        text = "no queues: create one with fdbq queue create" if snapshot.began else "reading…"
        lines.append(Line(text, "dim"))
    selected = next((row for row in rows if row.name == controls.selected), None)
    details = _details(selected, width) if selected is not None else []
    room = height - 1 - (DETAIL_LINES if height >= FEWEST_LINES + DETAIL_LINES else 0)
    lines = lines[:room]
    lines += [Line("")] * (room - len(lines))
    lines += [*details, *[Line("")] * DETAIL_LINES][: height - 1 - room]
    lines.append(_foot(controls))
    return [Line(terminal.cut(line.text, width, ""), line.style) for line in lines[:height]]


def _foot(controls: Controls) -> Line:
    if controls.typing:
        return Line(f"/{terminal.visible(controls.filter)}▏", "bold")
    if controls.filter:
        return Line(f"only *{terminal.visible(controls.filter)}*: Esc shows all  / another  ? help")
    return Line(HELP, "dim")


def _title(snapshot: Snapshot, now: float) -> Line:
    late = now - snapshot.at
    if late > 10:
        age = terminal.age(int(late * 1000))
        return Line(f"fdbq top  {snapshot.store}  no response for {age}", "bold red")
    return Line(f"fdbq top  {snapshot.store}", "bold")


def _totals(snapshot: Snapshot) -> Line:
    total = sum((row.depth for row in snapshot.rows), Depth())
    conflicts = "" if snapshot.conflicts is None else f"  conflicts {short(snapshot.conflicts)}/s"
    return Line(
        f"{terminal.count(len(snapshot.rows), 'queue')}  ready {short(total.ready)}  "
        f"leased {short(total.leased)}  dead {short(total.dead)}  "
        f"in {short(sum(row.rate_in for row in snapshot.rows))}/s  "
        f"out {short(sum(row.rate_out for row in snapshot.rows))}/s{conflicts}"
    )


def _heading(controls: Controls, width: int) -> str:
    mark = "▼" if controls.descending else "▲"
    titles = [
        f"{column.title}{mark}" if n == controls.column else column.title
        for n, column in enumerate(COLUMNS)
    ]
    return _aligned(titles, width).ljust(width)


def _aligned(texts: Sequence[str], width: int) -> str:
    first, *others = texts
    name_width = max(8, width - sum(column.width + 1 for column in COLUMNS[1:]))
    cells = [text.rjust(column.width) for text, column in zip(others, COLUMNS[1:], strict=True)]
    return " ".join([terminal.filled(first, name_width), *cells])


def _details(row: Row, width: int) -> list[Line]:
    paused = "  (paused)" if row.paused else ""
    levels = [
        f"{level}:{short(depth.ready)}"
        for level, depth in sorted(row.levels.items())
        if depth.ready
    ]
    by_level = textwrap.wrap(
        f"ready by level   {'  '.join(levels) or 'none'}",
        width,
        subsequent_indent=" " * 17,
        max_lines=LEVEL_LINES,
        placeholder=" …",
    )
    consumers = [f"{count} {state}" for state, count in row.consumers.items() if count]
    depth = row.depth
    return [
        Line(terminal.filled(f"─ {terminal.visible(row.name)}{paused} ", width, "─"), "dim"),
        *(Line(text) for text in by_level),
        Line(f"consumers        {', '.join(consumers) or 'none'}"),
        Line(
            f"since creation   enqueued {short(depth.enqueued)}  done {short(depth.done)}  "
            f"expired {short(depth.expired)}  purged {short(depth.purged)}"
        ),
    ]
