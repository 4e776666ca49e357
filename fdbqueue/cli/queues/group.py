"""``fdbq group …``: groups of messages, and the message that follows each."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import fdbqueue

from ...errors import NotFound
from .. import context, json_schema, listings, terminal
from ..commands import Group
from ..output import Done, Listed
from ..parameters import ChangeOptions, PageOptions, QueueName, argument

if TYPE_CHECKING:
    from ...values import groups

HEADERS = ["group", "state", "left", "of", "done", "dead", "failed", "created", "ended", "then"]

app = Group("group", "List and forget groups, after whose last message another one comes.")


@app.command("list")
def list_(
    name: QueueName,
    group: str | None = argument("GROUP", "Only this group.", None),
    *,
    page: PageOptions,
) -> Listed:
    """List the groups of a queue and how far each has come, or one group.

    Without --max, the first 100 are listed.

    Examples:
      fdbq group list parts
      fdbq group list parts load-17 --watch 5
    """
    if group is not None and page.after is not None:
        raise terminal.CommandError("--after continues a list: leave out GROUP")
    db, queue = context.open_queue(name)

    def read(most: int, after: str | None) -> list[groups.Group]:
        if group is not None:
            return [] if after else [_known(db, queue, group)]
        return queue.groups.list(db, most, after=after)

    nothing = f"queue {name} has no groups"
    return listings.listing("group", read, attrgetter("name"), HEADERS, _row, _json, nothing, page)


def _known(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str) -> groups.Group:
    """The group of that name; raises ``NotFound``."""
    found = queue.groups.get(db, name)
    if found is None:
        raise NotFound(kind="group", queue=queue.name, name=name)
    return found


def _row(group: groups.Group, now_ms: int) -> tuple[object, ...]:
    then = f"a message in {group.queue}, when all are {group.then_on}"
    if group.callback_id is not None:
        then = f"{group.callback_id} in {group.queue}"
    elif group.retry_ms is not None:
        left_ms = group.retry_ms - now_ms
        again = f"in {terminal.age(left_ms)}" if left_ms > 0 else "when somebody receives"
        then = f"{then}; tried again {again}"
    counts = (group.left, group.total, group.done, group.dead, group.failed)
    times = (terminal.ago(each, now_ms) for each in (group.created_ms, group.ended_ms))
    return (group.name, group.state, *counts, *times, then)


@app.command()
def forget(
    name: QueueName,
    group: str = argument("GROUP", "The name of the group."),
    *,
    change: ChangeOptions,
) -> Done:
    """Forget a group. Its messages stay, and the message that would follow does not come.

    Example:
      fdbq group forget parts load-17 --yes
    """
    db, queue = context.open_queue(name)
    _known(db, queue, group)
    remove = partial(queue.groups.forget, db, group)
    return change.remove("forget", "forgotten", "group", name, group, remove)


def _json(found: groups.Group) -> dict[str, Any]:
    counts = ("total", "left", "done", "dead", "failed")
    times = ("created_ms", "ended_ms", "retry_ms")
    told = json_schema.known(found, "state", "then_on", *counts, "callback_id", *times)
    return {"group": found.name, "then_queue": found.queue, **told}
