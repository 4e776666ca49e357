"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

import fdbqueue

HARMLESS = frozenset("-_.,:/+=@%")
"""Characters that mean nothing to a shell, beside letters and digits."""


def complete_queue(context: typer.Context, incomplete: str) -> list[str]:
    """Names of queues, for the shell's completion: no answer rather than an error."""
    try:
        names = fdbqueue.list_queues(_open(context))
    except Exception:
        return []
    return _offered(names, incomplete)


def complete_subscription(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the queue's subscriptions, for the shell's completion."""
    try:
        queue = fdbqueue.Queue(context.params["name"])
        names = [each.name for each in queue.subscriptions.list(_open(context))]
    except Exception:
        return []
    return _offered(names, incomplete)


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    """Those that a shell takes as they are: in a name like ``$(reboot)`` it sees a command."""
    return [
        name
        for name in names
        if name.startswith(incomplete) and all(c.isalnum() or c in HARMLESS for c in name)
    ]


def _open(context: typer.Context) -> fdbqueue.fdb.Database:
    store = context.find_root().params.get("store")
    if store:
        os.environ["FDBQUEUE_STORE"] = store
    return fdbqueue.open(timeout=1, create=False)


QueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queue),
]
NewName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the new queue.")]
SubscriptionName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the subscription.", autocompletion=complete_subscription
    ),
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="Id of the message.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only tell what would be done, and do nothing.")
]
Watch = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0.1,
        help="Look again every so many seconds, until Ctrl-C. With --json, one array to a line "
        "for each look.",
    ),
]
Selecting = Annotated[
    str | None,
    typer.Option(
        "--selector",
        metavar="SELECTOR",
        help="Only messages that match, in the syntax of JMS: \"region = 'eu' AND priority > 6\".",
    ),
]
