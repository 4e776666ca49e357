"""Running a worker that a program defines."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import terminal

MAX_PROCESSES = 256


class _Harmless(logging.Formatter):
    """Log lines that do nothing to a terminal and cannot be forged: what fails may quote a message.

    A record is one line, and the lines of a traceback are set off from it.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return terminal.visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {terminal.visible(line)}" for line in lines)


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="The worker: a name in a module that can be imported from here.",
        ),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", "-c", metavar="N", help="Messages handled at once, by each process."
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            "-p",
            metavar="N",
            min=1,
            max=MAX_PROCESSES,
            help="Processes to run; one that dies is started again.",
        ),
    ] = 1,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Start anew when a Python file below here changes."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what the worker does, not only failures.")
    ] = False,
) -> None:
    """Run a worker until it is stopped.

    SIGTERM or Ctrl-C lets it finish what it handles and give back the rest; a second one stops it
    at once. What it works on is said on standard error first.

    \b
    Examples:
      fdbq worker shop.orders:worker --verbose
      fdbq worker shop.orders:worker --concurrency 32 --processes 4
      fdbq worker shop.orders:worker --reload
    """
    from ...worker import runner, supervisor  # the store is chosen when this is imported

    if processes > 1 or reload:
        given = [target, *(["--concurrency", str(concurrency)] if concurrency else [])]
        given += ["--verbose"] if verbose else []
        start = "import fdbqueue.cli; fdbqueue.cli.main()"
        command = [sys.executable, "-c", start, "worker", *given]
        watched = Path.cwd() if reload else None
        code = supervisor.Supervisor(command, processes, watched, terminal.note).run()
        if code:
            raise typer.Exit(code)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Harmless("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    runner.run(target, concurrency, terminal.note)
