"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any

import fdbqueue

from . import durations, home
from .declarations import Argument, Option

HARMLESS = frozenset("-_.,:/+=@%")
"""Characters that mean nothing to a shell, beside letters and digits."""


def complete_queue(ctx: Any, incomplete: str) -> list[str]:
    """Names of queues, for the shell's completion: no answer rather than an error."""
    try:
        names = home.names(_open(ctx))
    except Exception:
        return []
    return _offered(names, incomplete)


def complete_subscription(ctx: Any, incomplete: str) -> list[str]:
    """Names of the queue's subscriptions, for the shell's completion."""
    try:
        queue = fdbqueue.Queue(ctx.params["name"])
        names = [each.name for each in queue.subscriptions.list(_open(ctx))]
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


def _open(ctx: Any) -> fdbqueue.fdb.Database:
    given = ctx.find_root().params
    store = given.get("store")
    home.root = given.get("root") or ""
    if store:
        os.environ["FDBQUEUE_STORE"] = store
    return home.opened(timeout=1)


QueueName = Annotated[
    str,
    Argument(metavar="QUEUE", help="Name of the queue.", autocompletion=complete_queue),
]
QueueNames = Annotated[
    list[str],
    Argument(metavar="QUEUE…", help="Names of queues.", autocompletion=complete_queue),
]
NewNames = Annotated[list[str], Argument(metavar="QUEUE…", help="Names of the new queues.")]
SubscriptionName = Annotated[
    str,
    Argument(
        metavar="NAME", help="Name of the subscription.", autocompletion=complete_subscription
    ),
]
MessageId = Annotated[str, Argument(metavar="ID", help="Id of the message.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
AsCsv = Annotated[
    bool, Option("--csv", help="Print CSV with a line of names: what --json has, flat.")
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only tell what would be done, and do nothing.")]
Watch = Annotated[
    float | None,
    Option(
        metavar="DURATION",
        parser=durations.at_least(0.1),
        help="Look again every so many seconds, until Ctrl-C. With --json, one array to a line "
        "for each look.",
    ),
]
MOST = "At most so many; a note says if there are more."
MostOrAll = Annotated[int | None, Option("--max", metavar="N", min=1, help=MOST)]
AfterName = Annotated[
    str | None,
    Option("--after", metavar="NAME", help="Go on behind this one, as the list names it."),
]
Most = Annotated[int, Option("--max", metavar="N", min=1, help=MOST)]
After = Annotated[
    str | None, Option(metavar="ID", help="Go on behind this one, the last of an earlier listing.")
]
Selecting = Annotated[
    str | None,
    Option(
        "--selector",
        metavar="SELECTOR",
        help="Only messages that match, in the syntax of JMS: \"region = 'eu' AND priority > 6\".",
    ),
]
