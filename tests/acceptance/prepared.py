"""A process that has imported ``fdbq``, from which commands and modules are forked.

What a command must not find prepared, such as the choice of the engine, is tested without this.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.forking import Forking, run_module, run_program, serve

NEEDS_ITS_OWN_START = r"(top|worker(?! list)|stream (check|drain|load|replay|report))\b"
"""A pattern of commands that start processes, or go on until they are sent a signal."""


class Prepared(Forking):
    """Runs commands of ``fdbq``, programs by their path, and modules after ``-m``."""

    def __init__(self) -> None:
        super().__init__(__name__)

    @property
    def directory(self) -> Path:
        """Where there is an ``fdbq`` for shells that runs its commands here."""
        real = str(Path(sys.executable).parent / "fdbq")
        own = f"not re.match({NEEDS_ITS_OWN_START!r}, ' '.join(arguments))"
        return self.program("fdbq", real, own).parent


def main(path: str) -> None:
    """Import it all, and fork a process for each command."""
    from fdbqueue.cli import main as command  # a module takes its name when it is imported

    _import_all()

    def run(arguments: list[str]) -> None:
        if arguments[:1] == ["-m"]:
            run_module(arguments)
        elif arguments[0].endswith(".py"):
            run_program(arguments)
        else:
            sys.argv = ["fdbq", *arguments]
            command()

    serve(path, run)


def _import_all() -> None:
    import fdbqueue
    from fdbqueue.cli.main import command

    for module in pkgutil.walk_packages(fdbqueue.__path__, "fdbqueue."):
        if not module.name.startswith(("fdbqueue.spark", "fdbqueue.testing")):
            importlib.import_module(module.name)
    with redirect_stdout(StringIO()):
        command().main(["--help"], standalone_mode=False)  # Typer imports more by now.
    _prepare(command())


def _prepare(command: Any) -> None:
    """Let typer make a command and those below it, which it otherwise does when it runs them."""
    for parameter in command.params:
        parameter.get_runtime_param()
    for below in getattr(command, "commands", {}).values():
        _prepare(below)


if __name__ == "__main__":
    main(sys.argv[1])
