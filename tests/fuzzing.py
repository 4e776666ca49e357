"""The command line in this process, for thousands of runs: what it is given, and what it prints."""

from __future__ import annotations

import contextlib
import importlib
import io
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import strategies as st

main = importlib.import_module("fdbqueue.cli.main")  # the package has a function of that name

TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)
CONTROL = ["\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r\n", "\x00", "\u202e", "\ud800", "%s%n"]
NUMBERS = ["0", "1", "3", "-1", "1e3", "1e400", "nan", "inf", "0x1", "99999999999999999999", ""]
SELECTORS = ["region = 'eu'", "priority >", "NOT (a IS NULL)", "age > 1", "a LIKE '%' ESCAPE '%%'"]
SETTINGS = ["max_attempts=2", "lease=nan", "backoff={}", "window=x", "levels=1", "paused=true", "="]
JSON = ['{"payload": "x"}', '{"payload": 1}', "[]", "{", '{"token": "00"}', "null", "\ud800"]
WORDS = ["acquire", "browse", "ready", "first", "now", "2030-01-31", "a=b", "."]
WAITS = st.sampled_from(["0", "0.001", "-1", "nan", "x"])
"""The only values of ``--wait``: any other one may take as long as it says."""
UNBOUNDED = {"watch", "follow", "where", "store", "install_completion", "show_completion"}
"""Options that let a command go on until it is stopped, start Spark, or are about other things."""
TOO_LONG = 30.0
ENDLESS = {
    *("top", "web", "doctor", "metrics serve", "worker run"),
    *("stream load", "stream drain", "stream report", "stream check"),
}
"""Commands that run until they are stopped, take their time to measure, or start Spark."""


@dataclass(frozen=True, slots=True)
class Line:
    """A command line, and what stands on standard input."""

    arguments: tuple[str, ...]
    given: bytes


@dataclass(frozen=True, slots=True)
class Printed:
    """How a command ended, and what it printed."""

    code: int
    out: bytes
    err: str


class Commands:
    """The commands that there are."""

    def __init__(self) -> None:
        self.leaves = list(_leaves(main.command(), ()))

    def run(self, line: Line) -> Printed:
        """Run a command line as the console script does, but in this process."""
        out, err = io.BytesIO(), io.BytesIO()
        with tempfile.TemporaryFile() as file:
            file.write(line.given)
            file.seek(0)
            streams: dict[str, Any] = {
                "stdin": io.TextIOWrapper(file),
                "stdout": io.TextIOWrapper(out, "utf-8", write_through=True),
                "stderr": io.TextIOWrapper(err, "utf-8", write_through=True),
            }
            with mock.patch.multiple(sys, **streams), _interrupted():
                code = main.run(line.arguments)
            printed = Printed(code, out.getvalue(), err.getvalue().decode())
            for stream in streams.values():
                stream.detach()
        return printed

    def lines(self, queue: str) -> st.SearchStrategy[Line]:
        """Command lines of all commands, with sense and without, about a queue that is there."""
        return st.composite(self._line)(queue)

    def _line(self, draw: st.DrawFn, queue: str) -> Line:
        # A slash could name a file elsewhere, which is not to be written.
        hostile = st.one_of(TEXT, st.sampled_from(CONTROL)).map(lambda text: text.replace("/", "|"))
        number = st.sampled_from(NUMBERS)
        queues = st.sampled_from([queue] * 8 + [f"{queue}-other"])
        words = st.sampled_from([*SELECTORS, *SETTINGS, *JSON, *WORDS])
        value = st.one_of(queues, number, words, hostile)

        def usual(parameter: Any) -> st.SearchStrategy[str]:
            return number if parameter.metavar in ("N", "SECONDS") else words

        def sensible(odds: int) -> bool:
            return draw(st.integers(0, odds)) != 0

        path, command = draw(st.sampled_from(self.leaves))
        given = []
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                first = parameter is command.params[0]
                most = 3 if parameter.nargs != 1 else 1
                each = queues if first and sensible(9) else value
                given += draw(st.lists(each, min_size=int(parameter.required), max_size=most))
            elif parameter.name not in UNBOUNDED and draw(st.integers(0, 4)) == 0:
                given.append(draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts])))
                if not parameter.is_flag:
                    plain = usual(parameter) if sensible(3) else value
                    given.append(draw(WAITS if parameter.name == "wait" else plain))
        if not sensible(15):
            given.append(draw(hostile))
        lines = draw(st.lists(st.one_of(hostile, st.sampled_from(JSON)), max_size=3))
        return Line((*path, *given), "\n".join(lines).encode(errors="surrogatepass"))


@contextlib.contextmanager
def _interrupted() -> Iterator[None]:
    """Interrupt what goes on for too long, which then ends with 130."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, TOO_LONG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, found in getattr(command, "commands", {}).items():
        if " ".join((*path, name)) not in ENDLESS:
            yield from _leaves(found, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


def harmless(text: str) -> bool:
    """Whether a terminal does nothing but print it, line by line."""
    return all(line.isprintable() for line in text.split("\n"))
