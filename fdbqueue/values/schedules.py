"""Schedules: when they tick, and what is known of one.

A tick is a moment in milliseconds since the epoch. Which ticks there are follows from the schedule
alone, so all machines agree on them, whatever their clocks say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from msgspec import Struct

from ..errors import InvalidArgument
from . import durations
from .durations import Seconds
from .model import Headers
from .text import meant

Overlap = Literal["queue", "skip"]
"""What a tick does while the message of the one before is not done."""
CatchUp = Literal["last", "all", "none"]
"""Which ticks come late after nobody was there to enqueue them."""


class ScheduleTerms(TypedDict, total=False):
    """What ``Schedules.set`` takes besides a name and a value."""

    cron: str | None
    every: Seconds | None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    priority: int
    headers: Headers | None
    ttl: Seconds | None
    max_attempts: int | None
    backoff: Any
    key: str | None
    limits: Mapping[str, str] | None


LATE_MS = 60_000
"""A tick is missed if it is later than this: as far apart as believed clocks may be."""
MIN_EVERY_SECONDS = 1.0
MAX_EVERY_SECONDS = 10 * 366 * 24 * 3600.0
_CRON_RANGES = {
    "Bad minute": "the minute, the first field, is 0 to 59",
    "Bad hour": "the hour, the second field, is 0 to 23",
    "Bad day-of-month": "the day of the month, the third field, is 1 to 31, if the month has it",
    "Bad month": "the month, the fourth field, is 1 to 12, or JAN to DEC",
    "Bad day-of-week": "the day of the week, the fifth field, is 0 to 7, or MON to SUN",
}
"""What Cronsim says, and what a field can be."""
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""What to write in place of the names that other crons have."""
_WINDOWS_MS = tuple(hours * 3_600_000 for hours in (1, 24, 31 * 24, 366 * 24, 51 * 366 * 24))


class Timing(Struct, frozen=True, array_like=True):
    """When a schedule ticks: at the times of ``cron`` in its time zone, or every ``every_ms`` from
    ``start_ms`` on. One of both is None."""

    cron: str | None
    every_ms: int | None
    timezone: str
    start_ms: int

    def following(self, after_ms: int) -> int | None:
        """The first tick after a moment; None if there is none any more."""
        return next(self._after(after_ms), None)

    def last(self, since_ms: int, until_ms: int) -> int:
        """The last tick up to a moment, of those from the tick ``since_ms`` on."""
        if self.every_ms is not None:
            return since_ms + max(0, until_ms - since_ms) // self.every_ms * self.every_ms
        for window in _WINDOWS_MS:
            # From further and further back: there may have been millions.
            ticks = self._after(max(since_ms, until_ms - window))
            found = [*itertools.takewhile(lambda tick: tick <= until_ms, ticks)]
            if found:
                return found[-1]
            if until_ms - window <= since_ms:
                break
        return since_ms

    def _after(self, moment_ms: int) -> Iterator[int]:
        """The ticks after a moment, in their order."""
        if self.every_ms is not None:
            passed = max(0, moment_ms - self.start_ms) // self.every_ms
            # Counted from the start, and not from the tick before: no delay of a tick adds up.
            yield from itertools.count(self.start_ms + (passed + 1) * self.every_ms, self.every_ms)
            return
        from zoneinfo import ZoneInfo  # most programs have no schedules

        from cronsim import CronSim

        assert self.cron is not None
        zone = ZoneInfo(self.timezone)
        last = begin = datetime.fromtimestamp(moment_ms // 1000, zone)
        last_ms = moment_ms
        for tick in CronSim(self.cron, begin):
            found = [tick]
            if tick.utcoffset() != last.utcoffset():
                # Cronsim goes by hours, and steps over ticks where clocks change by half of one.
                # From the change on, and from the next full hour, it finds them.
                change, hour = _change(last, tick)
                found = [
                    *_before(hour, CronSim(self.cron, datetime.fromtimestamp(change - 1, zone))),
                    *_before(
                        tick.timestamp(),
                        CronSim(self.cron, datetime.fromtimestamp(hour - 1, zone)),
                    ),
                    tick,
                ]
            for each in found:
                # An hour that comes twice, or not at all, may bring ticks that are no later.
                if (tick_ms := round(each.timestamp()) * 1000) > last_ms:
                    last_ms = tick_ms
                    yield tick_ms
            last = tick


def _before(end: float, ticks: Iterable[datetime]) -> Iterator[datetime]:
    """The first ticks, up to a moment. (Two datetimes of one zone compare what the wall shows.)"""
    return itertools.takewhile(lambda tick: tick.timestamp() < end, ticks)


def _change(begin: datetime, end: datetime) -> tuple[int, int]:
    """From which second on, between two moments, clocks are as at the end; and the first full hour
    from then on. In seconds since the epoch."""
    zone, low, high = end.tzinfo, int(begin.timestamp()), int(end.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        changed = datetime.fromtimestamp(middle, zone).utcoffset() == end.utcoffset()
        low, high = (low, middle) if changed else (middle, high)
    wall = datetime.fromtimestamp(high, zone)
    return high, high + -(60 * wall.minute + wall.second) % 3600


class TickStep(NamedTuple):
    """What becomes of a tick that is due: which tick comes now, if any, and which is the next."""

    now_ms: int | None
    next_ms: int | None


def step(timing: Timing, catch_up: CatchUp, due_ms: int, now_ms: int) -> TickStep:
    """What becomes of the tick ``due_ms``, which is not in the future.

    Ticks that are less than ``LATE_MS`` late come one by one: they may only seem late. Of those
    that are later, all come, the last one, or none.
    """
    missed_until = now_ms - LATE_MS
    if catch_up == "all" or due_ms >= missed_until:
        return TickStep(due_ms, timing.following(due_ms))
    last_ms = timing.last(due_ms, missed_until - 1)
    next_ms = timing.following(last_ms)
    if catch_up == "last":
        return TickStep(last_ms, next_ms)
    if next_ms is None or next_ms > now_ms:
        return TickStep(None, next_ms)
    return TickStep(next_ms, timing.following(next_ms))


def timing(
    cron: str | None, every: Seconds | None, timezone: str, now_ms: int, before: Timing | None
) -> Timing:
    """A valid timing. ``before``: the one that it replaces; the same interval goes on.

    Raises ``InvalidArgument``.
    """
    from cronsim import CronSimError

    _zone(timezone)
    if (cron is None) == (every is None):
        raise InvalidArgument(argument="cron", value=cron, problem="give cron or every")
    if every is not None:
        seconds = durations.within(every, MIN_EVERY_SECONDS, MAX_EVERY_SECONDS)
        if seconds is None:
            raise InvalidArgument(
                argument="every", value=every, problem="must be 1 second to ten years"
            )
        every_ms = int(seconds * 1000)
        same = before is not None and before.every_ms == every_ms
        # The same interval keeps its beginning: a deployment must not move the ticks.
        start_ms = before.start_ms if same and before else now_ms // 1000 * 1000
        return Timing(None, every_ms, timezone, start_ms)
    if not isinstance(cron, str) or len(cron.split()) != 5:
        problem = "must have five fields: minute, hour, day of the month, month, day of the week"
        if isinstance(cron, str) and cron in _NICKNAMES:
            problem += f"; write {_NICKNAMES[cron]!r}"
        raise InvalidArgument(argument="cron", value=cron, problem=problem)
    found = Timing(" ".join(cron.split()), None, timezone, 0)
    try:
        # The thirtieth of February is a valid field, and no date.
        never = found.following(now_ms) is None
    except (CronSimError, ValueError) as error:
        problem = _CRON_RANGES.get(str(error), str(error))
        raise InvalidArgument(argument="cron", value=cron, problem=problem) from None
    if never:
        raise InvalidArgument(argument="cron", value=cron, problem="it never comes")
    return found


def _zone(name: object) -> None:
    # Zoneinfo also opens files that mean another zone on each machine, such as "localtime".
    names = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    if name not in names:
        raise InvalidArgument(
            argument="timezone",
            value=name,
            problem="must be a name such as Europe/Berlin" + meant(str(name), names),
        )


def check_choice(argument: str, given: object, choices: object) -> None:
    """Raise ``InvalidArgument`` for anything but one of the values of a ``Literal``."""
    known = get_args(choices)
    if given not in known:
        raise InvalidArgument(
            argument=argument, value=given, problem=f"must be one of {', '.join(known)}"
        )


def shown(tick_ms: int) -> str:
    """A tick as the header of its message has it: ISO 8601 in UTC."""
    moment = datetime.fromtimestamp(tick_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Schedule(Struct, frozen=True):
    """What is known of a schedule.

    payload to limits: what each tick enqueues, as it was given; the payload as the serializer made
    it. ttl: seconds until a message expires, from when it comes. next_ms: the next tick; None if it
    is paused, or none comes any more. last_ms, last_id: the tick that was enqueued last, or the
    time of the last ``run``, and the message's id. fired, skipped: how many ticks were enqueued,
    and how many left out since the message before was not done. Times are milliseconds since the
    epoch.
    """

    name: str
    payload: bytes
    content_type: str
    priority: int
    headers: Headers
    max_attempts: int | None
    backoff: dict[str, Any] | None
    key: str | None
    limits: Mapping[str, str] | None
    cron: str | None
    every: float | None
    timezone: str
    overlap: Overlap
    catch_up: CatchUp
    ttl: float | None
    paused: bool
    next_ms: int | None
    last_ms: int | None
    last_id: str | None
    fired: int
    skipped: int
