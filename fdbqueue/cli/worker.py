"""Running a worker that a program defines."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer

from . import terminal


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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what the worker does, not only failures.")
    ] = False,
) -> None:
    """Run a worker until it is stopped.

    SIGTERM or Ctrl-C lets it finish what it handles and give back the rest; a second one stops it
    at once.

    \b
    Example:
      fdbq worker shop.orders:worker --verbose
    """
    from ..worker import runner  # the store is chosen when this is imported

    handler = logging.StreamHandler()
    handler.setFormatter(_Harmless("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    runner.run(target)
