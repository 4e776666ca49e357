"""How a benchmark is declared: a function that yields rows is a command of ``tools/bench``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeVar, get_type_hints

from typer import Exit, Option, Typer

from fdbqueue.cli import durations, terminal
from fdbqueue.cli.main import STYLE
from fdbqueue.cli.parameters import AsJson

F = TypeVar("F", bound=Callable[..., Iterable["Row"]])

Seconds = Annotated[
    float,
    Option(metavar="DURATION", parser=durations.at_least(0.1), help="Duration of each run."),
]
Rounds = Annotated[int, Option(metavar="N", min=1, help="Rounds, of which the median counts.")]

app = Typer(
    name="bench",
    help="Measure how fast the store and its queues are.",
    epilog="A benchmark writes to its own subspace, away from all queues, and removes it at the "
    "end, even after Ctrl-C. It does load the store, so avoid busy hours. The exit code is 1 if a "
    "bar does not hold. docs/benchmarks.md has examples.",
    add_completion=False,
    no_args_is_help=True,
    **STYLE,
)


@dataclass(frozen=True)
class Row:
    """A figure, and the bar that it is to hold, if it has one.

    unit: messages a second, unless it says otherwise. at_most: whether the bar is the most that
    the figure may be, or the least. more: what else the run has shown, by its name.
    """

    name: str
    figure: float
    unit: str = "/s"
    bar: float | None = None
    at_most: bool = False
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bar."""
        return self.bar is None or (
            self.figure <= self.bar if self.at_most else self.figure >= self.bar
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "holds": self.holds}

    def __str__(self) -> str:
        verdict = ""
        if self.bar is not None:
            verdict = f"  {'≤' if self.at_most else '≥'} {self.bar:g}  "
            verdict += "pass" if self.holds else "FAIL"
        more = "".join(f"  {name} {_text(figure)}" for name, figure in self.more.items())
        return f"{self.name:<64}{_text(self.figure):>10} {self.unit:<3}{verdict}{more}"


def _text(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def at_least(name: str, figure: float, bar: float) -> Row:
    """A row whose bar is the least that the figure may be."""
    return Row(name, figure, "", bar)


def at_most(name: str, figure: float, bar: float, unit: str = "") -> Row:
    """A row whose bar is the most that the figure may be."""
    return Row(name, figure, unit, bar, at_most=True)


def benchmark(name: str) -> Callable[[F], F]:
    """Make a command of a function: its parameters are the options, its docstring is the help, and
    each row is printed as soon as it is known."""

    def declared(function: F) -> F:
        def command(as_json: bool, **options: Any) -> None:
            rows = []
            for row in function(**options):
                rows.append(row)
                if not as_json:
                    print(row)
                    terminal.flush()
            if as_json:
                terminal.print_json([row.to_json() for row in rows])
            if not all(row.holds for row in rows):
                raise Exit(1)

        hints = {**get_type_hints(function, include_extras=True), "as_json": AsJson}
        given = inspect.signature(function).parameters.values()
        own = [each.replace(annotation=hints[each.name]) for each in given]
        own.append(
            inspect.Parameter(
                "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson
            )
        )
        command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        command.__annotations__ = hints
        command.__doc__ = function.__doc__
        app.command(name)(command)
        return function

    return declared


def known(noun: str, names: Iterable[str], choices: Iterable[str]) -> list[str]:
    """The names, each of which is one of the choices; all of these if there are none."""
    wanted = [name.strip() for name in names if name.strip()] or [*choices]
    if unknown := [name for name in wanted if name not in {*choices}]:
        raise terminal.CommandError(
            f"unknown {noun} {unknown[0]!r}; the {noun}s are {', '.join(choices)}"
        )
    return wanted


def counts(text: str, most: int = 256) -> list[int]:
    """Numbers from 1 on, separated by commas."""
    for each in text.split(","):
        if not each.strip().isdecimal() or not 0 < int(each) <= most:
            raise terminal.CommandError(f"{each!r} is not a number from 1 to {most:,}")
    return [int(each) for each in text.split(",")]
