"""When schedules tick, through changes of clocks, and which ticks come late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from fdbqueue.errors import InvalidArgument
from fdbqueue.values.schedules import LATE_MS, Timing, shown, step, timing

BERLIN = "Europe/Berlin"
START = 1_700_000_000_000


def ms(text: str) -> int:
    """A time in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def cron(fields: str, zone: str = BERLIN) -> Timing:
    return timing(fields, None, zone, START, None)


def ticks(each: Timing, after: str, count: int) -> list[str]:
    """The next ticks, in UTC."""
    found, moment = [], ms(after)
    for _ in range(count):
        following = each.following(moment)
        assert following is not None
        moment = following
        found.append(shown(moment)[:16])
    return found


@pytest.mark.parametrize(
    ("fields", "after", "wanted"),
    [
        # Winter and summer: the same time on the wall.
        ("0 3 * * *", "2026-01-10 12:00", ["2026-01-11T02:00", "2026-01-12T02:00"]),
        ("0 3 * * *", "2026-07-10 12:00", ["2026-07-11T01:00", "2026-07-12T01:00"]),
        # 02:30 on 29 March does not exist: right after it, and once.
        (
            "30 2 * * *",
            "2026-03-28 00:00",
            ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
        ),
        # 02:30 on 25 October exists twice: the first time only.
        (
            "30 2 * * *",
            "2026-10-24 00:00",
            ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
        ),
        # The same, seen from between the two.
        ("30 2 * * *", "2026-10-25 01:10", ["2026-10-26T01:30"]),
        # By the time that passes.
        (
            "*/30 * * * *",
            "2026-03-29 00:20",
            ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"],
        ),
        (
            "*/30 * * * *",
            "2026-10-25 00:20",
            ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"],
        ),
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-28T23:00", "2032-02-28T23:00"]),
        ("0 9 * * MON-FRI", "2026-11-20 12:00", ["2026-11-23T08:00", "2026-11-24T08:00"]),
    ],
)
def test_ticks_go_by_the_clock_on_the_wall(fields: str, after: str, wanted: list[str]) -> None:
    assert ticks(cron(fields), after, len(wanted)) == wanted


@pytest.mark.parametrize("fields", ["*/5 * * * *", "30 2 * * *", "0 3 * * 7", "0 0 1 1 *"])
@pytest.mark.parametrize("days", [0.001, 0.5, 20])
def test_the_last_tick_is_that_which_going_through_all_finds(fields: str, days: float) -> None:
    each = cron(fields)
    first = each.following(ms("2026-03-27 00:00"))
    assert first is not None
    until = first + int(timedelta(days=days).total_seconds() * 1000)
    last = first
    while (following := each.following(last)) is not None and following <= until:
        last = following
    assert each.last(first, until) == last


def test_years_without_anybody_take_no_time_to_pass() -> None:
    each = cron("* * * * *", "UTC")
    first, until = ms("2016-01-01 00:00"), ms("2026-01-01 00:00")
    assert each.last(first, until) == until


def test_what_is_less_than_a_minute_late_comes_and_what_was_missed_as_asked() -> None:
    each = timing(None, 10, "UTC", START, None)
    due = START + 10_000
    soon, late = due + LATE_MS, due + LATE_MS + 25_000
    for catch_up in ("last", "all", "none"):
        assert step(each, catch_up, due, soon) == (due, due + 10_000)
    assert step(each, "last", due, late) == (due + 20_000, due + 30_000)
    assert step(each, "all", due, late) == (due, due + 10_000)
    assert step(each, "none", due, late) == (due + 30_000, due + 40_000)
    seldom = timing(None, 600, "UTC", START, None)
    due = START + 600_000
    assert step(seldom, "last", due, due + LATE_MS + 1) == (due, due + 600_000)
    assert step(seldom, "none", due, due + LATE_MS + 1) == (None, due + 600_000)


def test_an_interval_goes_on_when_it_is_set_again() -> None:
    first = timing(None, 60, "UTC", START + 17, None)
    assert first.following(START + 18) == START + 60_000
    assert timing(None, 60, "UTC", START + 45_000, first) == first
    assert timing(None, 61, "UTC", START + 45_000, first).start_ms == START + 45_000


@pytest.mark.parametrize(
    ("fields", "every", "zone", "problem"),
    [
        (None, None, "UTC", "give cron or every"),
        ("0 3 * * *", 60, "UTC", "give cron or every"),
        ("0 3 * *", None, "UTC", "five fields"),
        ("61 3 * * *", None, "UTC", "minute, the first field, is 0 to 59"),
        ("0 0 * * 8", None, "UTC", "fifth field, is 0 to 7"),
        ("0 0 30 2 *", None, "UTC", "third field, .* if the month has it"),
        ("@daily", None, "UTC", r"five fields.*; write '0 0 \* \* \*'"),
        ("0 3 * * *", None, "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("0 3 * * *", None, "../etc/passwd", "Europe/Berlin"),
        ("0 3 * * *", None, 7, "Europe/Berlin"),
        # Files that zoneinfo opens, and that mean another zone, or other seconds, on each machine.
        ("0 3 * * *", None, "localtime", "Europe/Berlin"),
        ("0 3 * * *", None, "right/Europe/Berlin", "Europe/Berlin"),
        ("0 3 * * *", None, "europe/berlin", "Europe/Berlin"),
        (f"{'9' * 5_000} 3 * * *", None, "UTC", "cron"),
        (None, 0.5, "UTC", "1 second"),
        (b"0 3 * * *", None, "UTC", "five fields"),
    ],
)
def test_a_timing_that_makes_no_sense_is_refused(
    fields: str | None, every: float | None, zone: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        timing(fields, every, zone, START, None)


def test_the_zones_of_the_tests_are_there() -> None:
    assert ZoneInfo(BERLIN).utcoffset(datetime(2026, 7, 1)) == timedelta(hours=2)


def test_a_tick_that_is_exactly_a_minute_late_was_not_missed() -> None:
    each = timing(None, 60, "UTC", START, None)
    due = START + 60_000
    assert step(each, "none", due, due + 2 * LATE_MS) == (due + 60_000, due + 120_000)
    assert step(each, "last", due, due + 2 * LATE_MS) == (due, due + 60_000)


@pytest.mark.parametrize("fields", ["5 */2 * * *", "*/7 2 * * *", "*/30 1,2 5 4 *", "*/20 * * * *"])
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Australia/Lord_Howe", datetime(2026, 4, 4)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3)),
        ("Europe/Berlin", datetime(2026, 3, 28)),
        ("America/New_York", datetime(2026, 11, 1)),
    ],
)
def test_by_the_time_that_passes_a_schedule_ticks_whenever_the_wall_shows_its_time(
    fields: str, zone: str, day: datetime
) -> None:
    begin, shown = day.replace(tzinfo=UTC), ZoneInfo(zone)
    minutes = [begin + timedelta(minutes=n) for n in range(3 * 1440)]
    walls = {each: each.astimezone(shown).replace(tzinfo=None) for each in minutes}
    first = min(walls.values())
    wanted = set[datetime]()
    for tick in CronSim(fields, first - timedelta(minutes=1)):
        if tick > max(walls.values()):
            break
        wanted.add(tick)
    expected = [each for each, wall in walls.items() if wall in wanted]
    for start in (begin, begin + timedelta(hours=15, minutes=30)):
        end = minutes[-1]
        at, got = int(start.timestamp()) * 1000 - 1000, []
        timing_ = cron(fields, zone)
        while (following := timing_.following(at)) and following <= end.timestamp() * 1000:
            at = following
            got.append(datetime.fromtimestamp(following / 1000, UTC))
        assert got == [each for each in expected if each >= start]
