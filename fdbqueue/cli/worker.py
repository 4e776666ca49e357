"""Running a worker that a program defines."""

from __future__ import annotations

import logging
from typing import Annotated

import typer


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

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    runner.run(target)
