"""Real processes: the console script, and programs that use the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fdbqueue.errors import QueueError
from fdbqueue.store.binding import DEFAULT
from fdbqueue.store.location import Engine, locate
from tests.acceptance.prepared import Prepared
from tests.forking import Forked
from tests.patience import DEADLINE

FDBQ = Path(sys.executable).parent / "fdbq"
PROGRAMS = Path(__file__).parent / "programs"


@cache
def prepared() -> Prepared:
    """The process that commands are forked from."""
    return Prepared()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of ``fdbq`` ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What it printed, as JSON lines, or as an array."""
        if self.out.startswith("["):
            return list(self.json)
        return [json.loads(line) for line in self.out.splitlines()]


def run_anew(
    command: Sequence[str], environment: dict[str, str], given: bytes | str = b""
) -> Ended:
    """Run a command, started from nothing."""
    done = subprocess.run(
        command,
        check=False,
        input=given.encode() if isinstance(given, str) else given,
        capture_output=True,
        env=environment,
        timeout=DEADLINE,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_prepared(
    arguments: Sequence[str], environment: dict[str, str], given: bytes | str = b""
) -> Ended:
    """Run a command of ``fdbq``, or a module after ``-m``, forked from the prepared process."""
    with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
        stdin.write(given.encode() if isinstance(given, str) else given)
        for stream in (stdin, out, err):
            stream.seek(0)
        code = prepared().run(arguments, environment, (stdin, out, err))
        for stream in (out, err):
            stream.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())


class Fdbq:
    """Runs ``fdbq``."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def __call__(self, *arguments: str, given: bytes | str = b"") -> Ended:
        """Run it, whatever comes of it."""
        if self._may_be_prepared(arguments):
            return run_prepared(arguments, self.environment, given)
        return run_anew([str(FDBQ), *arguments], self.environment, given)

    def _may_be_prepared(self, arguments: Sequence[str]) -> bool:
        """Whether the process need not start from nothing."""
        differing = dict(self.environment.items() ^ os.environ.items())
        named = differing.keys() <= {"FDBQUEUE_STORE", "PYTEST_CURRENT_TEST"}
        return named and "--store" not in arguments and self._engine in (None, DEFAULT.engine)

    @property
    def _engine(self) -> Engine | None:
        """The engine that it loads; None if its store is not known."""
        try:
            return locate(self.environment["FDBQUEUE_STORE"]).engine
        except (KeyError, QueueError):
            return None

    def ok(self, *arguments: str, given: bytes | str = b"") -> Ended:
        """Run it; it must succeed."""
        ended = self(*arguments, given=given)
        assert ended.code == 0, ended
        return ended

    def refused(self, *arguments: str, given: bytes | str = b"", code: int) -> str:
        """Run it; it must fail with ``code`` and one line, which is returned without its start."""
        ended = self(*arguments, given=given)
        assert ended.code == code, ended
        assert ended.out == ""
        assert ended.err.startswith("fdbq: "), ended.err
        assert ended.err.count("\n") == 1, ended.err
        assert "Traceback" not in ended.err
        return ended.err.removeprefix("fdbq: ").rstrip("\n")


def start(
    words: Sequence[str], environment: dict[str, str], directory: Path, stderr: bool = False
) -> Forked | subprocess.Popen[str]:
    """Start ``fdbq``, with pipes for its output, and for its errors if asked for."""
    if not {"--processes", "--reload"} & {*words}:
        return prepared().start(words, environment, directory, stderr)
    return subprocess.Popen(  # Its own processes start as it did.
        [FDBQ, *words],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if stderr else None,
        text=True,
    )


class Workers:
    """Starts ``fdbq worker`` in a directory of its own, where ``app`` is a module that reads the
    files ``gate`` and ``told``."""

    def __init__(self, directory: Path, environment: dict[str, str], app: str) -> None:
        (directory / "app.py").write_text(app)
        self.gate, self.told = directory / "gate", directory / "told"
        self._directory = directory
        self._environment = environment
        self._started: list[Forked | subprocess.Popen[str]] = []

    def start(
        self, name: str = "worker", *options: str, stderr: bool = False, **environment: str
    ) -> Forked | subprocess.Popen[str]:
        """Start a worker of the module."""
        words = ["worker", f"app:{name}", *options]
        process = start(words, {**self._environment, **environment}, self._directory, stderr)
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()
            process.communicate()


def first_line(command: Sequence[str | Path], directory: Path, environment: dict[str, str]) -> str:
    """What a command that goes on prints first; then it is told to end, which must succeed."""
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
        finally:
            process.terminate()
    assert process.returncode == 0
    return line


class Programs:
    """Starts programs, and ends what still runs when the test is over."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._started: list[Forked] = []

    def start(self, program: str, *arguments: object) -> Forked:
        """Start a program of this folder."""
        words = [str(PROGRAMS / program), *map(str, arguments)]
        process = prepared().start(words, self._environment)
        self._started.append(process)
        return process

    def finish(self, processes: Sequence[Forked]) -> list[str]:
        """What the programs printed by their end, which must be a good one."""
        printed = [process.communicate(timeout=DEADLINE)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
        return printed

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.kill()
            process.communicate()


def told(process: Forked | subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
