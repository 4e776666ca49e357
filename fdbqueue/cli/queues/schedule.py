"""``fdbq schedule …``: messages that come again and again."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument

import fdbqueue

from ...errors import NotFound
from .. import context, durations, json_schema, listings, output, terminal
from ..commands import Group
from ..output import Done, Listed, Result, Shown
from ..parameters import (
    ChangeOptions,
    MessageOptions,
    PageOptions,
    QueueName,
    argument,
    option,
    typed,
)

if TYPE_CHECKING:
    from ...values.schedules import Schedule

app = Group(
    "schedule",
    "Set, list, pause, run and delete schedules, which enqueue a message again and again.",
)

Name = Annotated[str, Argument(metavar="SCHEDULE", help="The name of the schedule.")]


@app.command("set")
def set_(
    name: QueueName,
    schedule: Name,
    payload: str | None = argument("PAYLOAD", "The payload: JSON, or text that is none.", None),
    *,
    cron: str | None = option(
        "FIELDS", "When it ticks, as in cron: '0 3 * * *' is daily at three."
    ),
    every: float | None = durations.option("How often it ticks, instead of --cron."),
    timezone: str = option("ZONE", "The time zone of --cron, such as Europe/Berlin.", "UTC"),
    overlap: Literal["queue", "skip"] = option(
        None, "What a tick does while the message before it is not done.", "queue"
    ),
    catch_up: Literal["last", "all", "none"] = option(
        None, "Which of the ticks that were missed while no consumer ran come late.", "last"
    ),
    message: MessageOptions,
) -> Done:
    """Make a schedule, or change the one of that name.

    While consumers of the queue run, every tick enqueues a message with PAYLOAD. A change that
    leaves the times as they are leaves the next tick as it is.

    Examples:
      fdbq schedule set reports nightly all --cron '0 3 * * *' --timezone Europe/Berlin
      fdbq schedule set reports poll --every 30s --overlap skip
    """
    db, queue = context.open_producing(name)
    found = queue.schedules.set(
        db,
        schedule,
        b"" if payload is None else typed(queue, payload),
        cron=cron,
        every=every,
        timezone=timezone,
        overlap=overlap,
        catch_up=catch_up,
        **message.terms(),
    )
    return _result(name, found)


@app.command("list")
def list_(name: QueueName, *, page: PageOptions) -> Listed:
    """List the schedules of a queue. Without --max, the first 100 are listed.

    Examples:
      fdbq schedule list reports
      fdbq schedule list reports --watch 5
    """
    db, queue = context.open_queue(name)
    read, place = partial(queue.schedules.list, db), attrgetter("name")
    headers, nothing = (
        ["schedule", "ticks", "next", "last", "fired"],
        f"queue {name} has no schedules",
    )
    return listings.listing("schedule", read, place, headers, _row, _json, nothing, page)


def _row(found: Schedule, now_ms: int) -> tuple[object, ...]:
    return found.name, _ticks(found), *_times(found, now_ms), found.fired


@app.command()
def show(name: QueueName, schedule: Name) -> Shown:
    """Show a schedule, its next tick and its last.

    Example:
      fdbq schedule show reports nightly
    """
    db, queue = context.open_queue(name)

    def look() -> output.View:
        found = _known(db, queue, schedule)
        after, before = _times(found, fdbqueue.Clock().wall_ms())
        fields = [
            *(("schedule", found.name), ("ticks", _ticks(found)), ("next", after)),
            *(("last", before), ("message", found.last_id or "")),
            *(("overlap", found.overlap), ("catch up", found.catch_up)),
            *(("fired", found.fired), ("skipped", found.skipped)),
            ("payload", terminal.excerpt(found.payload)),
        ]
        return output.fields(fields, _json(found))

    return look


def _known(db: fdbqueue.fdb.Database, queue: fdbqueue.Queue, name: str) -> Schedule:
    """The schedule of that name; raises ``NotFound``."""
    found = queue.schedules.get(db, name)
    if found is None:
        raise NotFound(kind="schedule", queue=queue.name, name=name)
    return found


@app.command()
def pause(name: QueueName, schedule: Name) -> Done:
    """Let no more ticks of a schedule come, until it is resumed.

    Example:
      fdbq schedule pause reports nightly
    """
    db, queue = context.open_queue(name)
    return _result(name, queue.schedules.pause(db, schedule))


@app.command()
def resume(name: QueueName, schedule: Name) -> Done:
    """End the pause of a schedule. It goes on with the next tick from now.

    Example:
      fdbq schedule resume reports nightly
    """
    db, queue = context.open_queue(name)
    return _result(name, queue.schedules.resume(db, schedule))


@app.command()
def run(name: QueueName, schedule: Name) -> Done:
    """Enqueue the message of a schedule now, beside its ticks, and print its id.

    Example:
      fdbq schedule run reports nightly
    """
    db, queue = context.open_queue(name)
    message_id = queue.schedules.run(db, schedule)
    context.changed = 1
    return Result({"queue": name, "schedule": schedule, "id": message_id}, message_id)


@app.command()
def delete(name: QueueName, schedule: Name, *, change: ChangeOptions) -> Done:
    """Delete a schedule. Messages that it has enqueued stay.

    Example:
      fdbq schedule delete reports nightly --yes
    """
    db, queue = context.open_queue(name)
    _known(db, queue, schedule)
    remove = partial(queue.schedules.delete, db, schedule)
    return change.remove("delete", "deleted", "schedule", name, schedule, remove)


def _ticks(found: Schedule) -> str:
    if found.every is not None:
        return f"every {found.every:g} s"
    return f"{found.cron} {found.timezone}"


def _times(found: Schedule, now_ms: int) -> tuple[str, str]:
    """In how long the next tick comes, and how long ago the last came."""
    after = "paused" if found.paused else "never"
    if found.next_ms is not None:
        late = now_ms - found.next_ms
        after = f"in {terminal.age(-late)}" if late <= 0 else f"{terminal.age(late)} late"
    return after, terminal.ago(found.last_ms, now_ms)


def _json(found: Schedule) -> dict[str, Any]:
    names = (
        *("priority", "headers", "overlap", "catch_up", "paused", "fired", "skipped", "every"),
        *("ttl", "max_attempts", "backoff", "key", "limits", "last_id", "next_ms", "last_ms"),
        *(("cron", "timezone") if found.cron else ()),
    )
    shown = json_schema.payload(found.payload, found.content_type)
    return {"schedule": found.name, **shown, **json_schema.known(found, *names)}


def _result(queue: str, found: Schedule) -> Result:
    after, _ = _times(found, fdbqueue.Clock().wall_ms())
    comes = after if found.paused else f"next {after}"
    text = f"schedule {found.name} of queue {queue}: {_ticks(found)}, {comes}"
    return Result({"queue": queue, **_json(found)}, text)
