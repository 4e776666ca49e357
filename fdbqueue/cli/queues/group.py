"""``fdbq group …``: groups of messages, and the message that follows each."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Typer

import fdbqueue

from ...errors import NotFound
from .. import context, json_schema, listings, terminal
from ..parameters import ChangeOptions, ListOutput, PageOptions, QueueName, grouped

if TYPE_CHECKING:
    from ...values.groups import Group

HEADERS = ["group", "state", "left", "of", "done", "dead", "failed", "created", "ended", "then"]

app = Typer(
    name="group",
    help="List and forget groups, after whose last message another one comes.",
    no_args_is_help=True,
)


@app.command("list")
@grouped
def list_(
    name: QueueName,
    group: Annotated[str | None, Argument(metavar="GROUP", help="Only this group.")] = None,
    *,
    page: PageOptions,
    output: ListOutput,
) -> None:
    """List the groups of a queue and how far each has come, or one group.

    Without --max, the first 100 are listed.

    \b
    Examples:
      fdbq group list parts
      fdbq group list parts load-17 --watch 5
    """
    if group is not None and page.after is not None:
        raise terminal.CommandError("--after continues a list: leave out GROUP")
    db, queue = context.open_queue(name)

    def read(most: int, after: str | None) -> list[Group]:
        if group is not None:
            return [] if after else [_known(db, queue, group)]
        return queue.groups.list(db, most, after=after)

    listed = partial(listings.listing, read, attrgetter("name"), _row, _json, HEADERS, "group")
    look = partial(listed, f"queue {name} has no groups", page, page.after)
    listings.show(look, output)


def _known(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str) -> Group:
    """The group of that name; raises ``NotFound``."""
    found = queue.groups.get(db, name)
    if found is None:
        raise NotFound(kind="group", queue=queue.name, name=name)
    return found


def _row(group: Group, now_ms: int) -> tuple[object, ...]:
    then = f"a message in {group.queue}, when all are {group.then_on}"
    if group.callback_id is not None:
        then = f"{group.callback_id} in {group.queue}"
    elif group.retry_ms is not None:
        then = f"{then}; tried again {_until(group.retry_ms - now_ms)}"
    ended = "" if group.ended_ms is None else f"{terminal.age(now_ms - group.ended_ms)} ago"
    counts = (group.left, group.total, group.done, group.dead, group.failed)
    created = f"{terminal.age(now_ms - group.created_ms)} ago"
    return (group.name, group.state, *counts, created, ended, then)


@app.command()
@grouped
def forget(
    name: QueueName,
    group: Annotated[str, Argument(metavar="GROUP", help="The name of the group.")],
    *,
    change: ChangeOptions,
) -> None:
    """Forget a group. Its messages stay, and the message that would follow does not come.

    \b
    Example:
      fdbq group forget parts load-17 --yes
    """
    db, queue = context.open_queue(name)
    _known(db, queue, group)
    remove = partial(queue.groups.forget, db, group)
    change.remove("forget", "forgotten", "group", name, group, remove)


def _until(left_ms: int) -> str:
    return f"in {terminal.age(left_ms)}" if left_ms > 0 else "when somebody receives"


def _json(found: Group) -> dict[str, Any]:
    counts = ("total", "left", "done", "dead", "failed")
    times = ("created_ms", "ended_ms", "retry_ms")
    told = json_schema.known(found, "state", "then_on", *counts, "callback_id", *times)
    return {"group": found.name, "then_queue": found.queue, **told}
