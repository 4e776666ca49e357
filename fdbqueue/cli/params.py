"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from typing import Annotated

import typer

import fdbqueue


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Names of queues, for the shell's completion: no answer rather than an error."""
    try:
        store = context.find_root().params.get("store")
        if store:
            os.environ["FDBQUEUE_STORE"] = store
        names = fdbqueue.list_queues(fdbqueue.open(timeout=1))
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


QueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queue),
]
NewName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the new queue.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
