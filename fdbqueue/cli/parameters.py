"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from typer import Argument, Option

import fdbqueue
from fdbqueue.values.options import DEFAULT_PRIORITY

from . import context, durations, terminal
from .output import AsJson as AsJson
from .output import Result

SHELL_SAFE = frozenset("-_.,:/+=@%")
"""Characters that no shell interprets, in addition to letters and digits."""


def _completes(
    names: Callable[[fdbqueue.fdb.Database, Any], Iterable[str]],
) -> Callable[[Any, str], list[str]]:
    """Shell completion of names that are safe there: a shell would run a command in ``$(reboot)``.
    None if the store cannot be read."""

    def complete(ctx: Any, incomplete: str) -> list[str]:
        given = ctx.find_root().params
        context.root = given.get("root") or ""
        if given.get("store"):
            # While a shell completes, the callback of `fdbq` that does this has not run.
            os.environ["FDBQUEUE_STORE"] = given["store"]
        try:
            found = [*names(context.connect(timeout=1), ctx)]
        except Exception:
            return []
        safe = (each for each in found if all(c.isalnum() or c in SHELL_SAFE for c in each))
        return [each for each in safe if each.startswith(incomplete)]

    return complete


complete_queue = _completes(lambda db, _: context.queue_names(db))
complete_subscription = _completes(
    lambda db, ctx: (e.name for e in context.queue(ctx.params["name"]).subscriptions.list(db))
)


def option(
    metavar: str | None, help: str, default: object = None, *names: str, **terms: Any
) -> Any:
    """Declare an option. names: instead of that of the parameter."""
    return Option(default, *names, metavar=metavar, help=help, **terms)


def flag(help: str, *names: str, **terms: Any) -> Any:
    """Declare an option without a value."""
    return Option(False, *names, help=help, **terms)


def argument(metavar: str, help: str, default: object = ..., **terms: Any) -> Any:
    """Declare an argument."""
    return Argument(default, metavar=metavar, help=help, **terms)


def queue_option(help: str) -> Any:
    """Declare an option that names a queue, or several."""
    return option("QUEUE", help, None, "--queue", autocompletion=complete_queue)


QueueName = Annotated[
    str, Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)
]
QueueNames = Annotated[
    list[str], Argument(metavar="QUEUE…", help="The queues.", autocompletion=complete_queue)
]
AnyQueueNames = Annotated[
    list[str] | None,
    Argument(metavar="QUEUE…", help="The queues; by default all.", autocompletion=complete_queue),
]
SubscriptionName = Annotated[
    str,
    Argument(metavar="NAME", help="The subscription.", autocompletion=complete_subscription),
]
MessageId = Annotated[str, Argument(metavar="ID", help="The message's id.")]
Limit = Annotated[
    int | None,
    Option("--max", metavar="N", min=1, help="Show at most N; a note tells you if there are more."),
]
Match = Annotated[
    str | None,
    Option(
        "--match",
        metavar="SELECTOR",
        help="Only messages that match this JMS selector: \"region = 'eu' AND priority > 6\".",
    ),
]

SCHEMA = option("COLUMNS", "The schema of JSON payloads, such as 'carrier STRING, delay INT'.")
HEADER_COLUMNS = option("COLUMNS", "Headers as columns, such as 'region, tries BIGINT'.")


def encoded(payload: str) -> bytes:
    """The bytes of a payload on the command line."""
    try:
        return os.fsencode(payload)
    except UnicodeEncodeError:
        raise terminal.CommandError("PAYLOAD contains half of a surrogate pair") from None


def typed(queue: fdbqueue.Queue, payload: str) -> Any:
    """The value of a payload on the command line."""
    # Not above: what loads the bindings must come after --store is read.
    from fdbqueue.queue.internals import serializer
    from fdbqueue.values import serializers

    return serializers.typed(serializer(queue), encoded(payload))


def pair(option: str, text: str, shape: str = "NAME=VALUE") -> tuple[str, str]:
    """A name and its value; raises ``CommandError``."""
    # At the first one only: values may have others.
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise terminal.CommandError(f"{option} {text}: write {shape}")
    return name, value


def pairs(option: str, texts: Sequence[str] | None, shape: str = "NAME=VALUE") -> dict[str, str]:
    """Names and their values, each name once; raises ``CommandError``."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, value = pair(option, text, shape)
        if name in found:
            raise terminal.CommandError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


@dataclass
class PageOptions:
    """Which part of a listing is shown."""

    limit: Limit = None
    after: str | None = option("NAME", "Continue after this one, the last of the previous listing.")


@dataclass
class ChangeOptions:
    """Options of a command that removes or moves something."""

    dry_run: bool = flag("Show what would happen, and change nothing.", "--dry-run")
    yes: bool = flag("Do not ask for confirmation.", "--yes", "-y")

    def confirm(self, question: str) -> None:
        """Ask the user, unless --yes was given; raises ``CommandError`` if the answer is no."""
        terminal.confirm(question, self.yes)

    def counted(self, done: str, number: int) -> dict[str, int]:
        """The number as JSON fields: done, or what would be done. The audit log has it, too."""
        context.changed += 0 if self.dry_run else number
        return {done: 0, f"would_be_{done}": number} if self.dry_run else {done: number}

    def verb(self, verb: str, done: str) -> str:
        """How to begin the line that tells the result."""
        return f"would {verb}" if self.dry_run else done

    def remove(
        self, verb: str, done: str, kind: str, queue: str, name: str, remove: Callable[[], object]
    ) -> Result:
        """Remove a part of a queue, once the user agrees. done: as in "deleted"."""
        if not self.dry_run:
            self.confirm(f"{verb.capitalize()} {kind} {name!r} of queue {queue!r}?")
            remove()
        value = {"queue": queue, kind: name, done: not self.dry_run}
        return Result(value, f"{self.verb(verb, done)} {kind} {name}")


@dataclass
class MessageOptions:
    """What a message has beside its payload."""

    priority: int = option("N", "The priority, 0 to 9; 9 is the most urgent.", DEFAULT_PRIORITY)
    header: list[str] | None = option("NAME=VALUE", "A header. Repeatable.")
    ttl: float | None = durations.option("Time to live: a message expires after this.")
    max_attempts: int | None = option(
        "N", "Dead letter after N failed attempts, not as the queue says."
    )
    key: str | None = option("KEY", "A key: by default, its messages are delivered one at a time.")
    limit: list[str] | None = option(
        "NAME=VALUE", "A limit that it shares with messages of other queues. Repeatable."
    )

    def terms(self) -> dict[str, Any]:
        """As arguments of an enqueue; raises ``CommandError``."""
        return {
            "priority": self.priority,
            "headers": pairs("--header", self.header),
            "ttl": self.ttl,
            "max_attempts": self.max_attempts,
            "key": self.key,
            "limits": pairs("--limit", self.limit) or None,
        }
