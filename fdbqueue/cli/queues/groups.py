"""``fdbq group …``: groups of messages, and the message that follows each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Typer

import fdbqueue

from ...errors import NotFound
from .. import context, json_schema, listings, terminal
from ..parameters import Change, ListOutput, Output, Page, QueueName, grouped

if TYPE_CHECKING:
    from ...values.groups import Group

LISTED = 100

app = Typer(
    name="group",
    help="List, show and forget groups, after whose last message another one comes.",
    no_args_is_help=True,
)

Name = Annotated[str, Argument(metavar="GROUP", help="The name of the group.")]


@app.command("list")
@grouped
def list_(name: QueueName, *, page: Page, output: ListOutput) -> None:
    """List the groups of a queue. Without --max, the first 100 are listed.

    \b
    Example:
      fdbq group list parts
    """
    db, queue = context.open_queue(name)
    limit = page.limit or LISTED

    def look() -> listings.View:
        found = queue.groups.list(db, min(limit + 1, 1_000), after=page.after)
        shown = found[:limit]
        return listings.table(
            ["group", "state", "left", "of", "dead", "failed"],
            [
                (each.name, each.state, each.left, each.total, each.dead, each.failed)
                for each in shown
            ],
            [_json(each) for each in shown],
            f"queue {name} has no groups",
            listings.more("group", limit, shown[-1].name) if len(found) > limit else None,
        )

    listings.show(look, output)


@app.command()
@grouped
def show(name: QueueName, group: Name, *, output: Output) -> None:
    """Show how far a group has come.

    \b
    Examples:
      fdbq group show parts load-17
      fdbq group show parts load-17 --watch 5
    """
    db, queue = context.open_queue(name)

    def look() -> listings.View:
        found = queue.groups.get(db, group)
        if found is None:
            raise NotFound(kind="group", queue=name, name=group)
        now_ms = fdbqueue.Clock().wall_ms()
        times = [("created", found.created_ms), ("ended", found.ended_ms)]
        fields = [
            ("group", found.name),
            ("state", found.state),
            ("left", f"{found.left:,} of {found.total:,}"),
            *(("done", found.done), ("dead", found.dead), ("failed", found.failed)),
            ("then", f"a message in {found.queue}, when all are {found.then_on}"),
            *([("callback", found.callback_id)] if found.callback_id else []),
            *((what, f"{terminal.age(now_ms - at)} ago") for what, at in times if at is not None),
            *([("tried again", _until(found.retry_ms - now_ms))] if found.retry_ms else []),
        ]
        return listings.fields(fields, _json(found))

    listings.show(look, output)


@app.command()
@grouped
def forget(name: QueueName, group: Name, *, change: Change) -> None:
    """Forget a group. Its messages stay, and the message that would follow does not come.

    \b
    Example:
      fdbq group forget parts load-17 --yes
    """
    db, queue = context.open_queue(name)
    if queue.groups.get(db, group) is None:
        raise NotFound(kind="group", queue=name, name=group)
    if not change.dry_run:
        change.confirm(f"Forget group {group!r} of queue {name!r}?")
        queue.groups.forget(db, group)
    change.print_result(
        {"queue": name, "group": group, "forgotten": not change.dry_run},
        f"{change.verb('forget', 'forgot')} group {group}",
    )


def _until(left_ms: int) -> str:
    return f"in {terminal.age(left_ms)}" if left_ms > 0 else "when somebody receives"


def _json(found: Group) -> dict[str, Any]:
    times = {"created": found.created_ms, "ended": found.ended_ms, "retry": found.retry_ms}
    optional = {"callback_id": found.callback_id}
    return {
        "group": found.name,
        "state": found.state,
        "then_on": found.then_on,
        "then_queue": found.queue,
        "total": found.total,
        "left": found.left,
        "done": found.done,
        "dead": found.dead,
        "failed": found.failed,
        **{name: value for name, value in optional.items() if value is not None},
        **{name: json_schema.when(at) for name, at in times.items() if at is not None},
    }
