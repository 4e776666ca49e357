"""The schemes beside each other, and the figures that the project promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Annotated

from typer import Argument, Option

from fdbqueue.cli import terminal

from . import measure
from .declare import Rounds, Row, Seconds, at_least, at_most, benchmark, counts, known
from .measure import Figures, Plan, WarmUp
from .turns import in_turn, ratio
from .ways import SCHEMES

DEPTHS = (1_000, 1_000_000)
FEW = (1, 2, 4, 8)
RATE = 2_500
"""More messages per second than any scheme takes here, so that no queue runs empty."""

Runs = Mapping[str, Sequence[Figures]]


@benchmark("schemes")
def schemes(
    names: Annotated[
        list[str] | None, Argument(metavar="SCHEME…", help="The schemes; by default all.")
    ] = None,
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of consumer processes.")
    ] = "1,2,4,8,16,32",
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
) -> Iterator[Row]:
    """Compare ways to dequeue, by number of consumers.

    first, auto and staged are the ways to receive. "plain recipe"
    and "published staged" are published recipes without leases: they lose what a crash interrupts.
    Those that begin with "subscribed" have consumers of one subscription, which wants all messages.
    """
    wanted = known("scheme", names or (), SCHEMES)
    for count in counts(consumers):
        for name in wanted:
            one = measure.run(_filled(Plan(name, count, 0, seconds, warm_up)))
            more = {
                "p50 ms": one.p50_ms,
                "p99 ms": one.p99_ms,
                "attempts": one.attempts_per_success,
                "commits": one.commits_per_message,
                "round trips": one.round_trips_per_message,
                "CPU s/1000": one.cpu_us / 1e3,
                "most:least": one.most_to_least,
            }
            yield Row(f"{name}, {count}", one.rate, more=more)


@benchmark("bars")
def bars(
    only: Annotated[
        str,
        Option(metavar="GROUP,…", help="Only enqueue, dequeue, few, batches or backlog."),
    ] = "",
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
    repeat: Rounds = 3,
    consumers: Annotated[int, Option(metavar="N", min=1, max=256, help="Consumer processes.")] = 16,
) -> Iterator[Row]:
    """Measure every figure that fdbqueue promises.

    It takes some minutes, and holds a million messages for a while.
    """
    plan = Plan("staged", consumers, 0, seconds, warm_up)
    for group in known("group", only.split(","), GROUPS):
        yield from GROUPS[group](plan, repeat)


def _runs(plans: Mapping[str, Plan], repeat: int) -> Runs:
    """Run all plans in turn, ``repeat`` times."""

    def run(name: str) -> Figures:
        terminal.note(f"{name} …")
        return measure.run(plans[name])

    return in_turn(repeat, {name: partial(run, name) for name in plans})


def _middle(runs: Sequence[Figures], name: str) -> float:
    return float(median(getattr(one, name) for one in runs))


def _ratio(runs: Runs, one: str, other: str) -> float:
    """The median ratio of the rate of one to that of the other."""
    return ratio(*([each.rate for each in runs[name]] for name in (one, other)))


def _filled(plan: Plan, rate: float = RATE) -> Plan:
    return replace(plan, backlog=int((plan.seconds + plan.warm_up) * rate))


def _tails(runs: Sequence[Figures]) -> float:
    return median(one.p99_ms / max(1e-9, one.p50_ms) for one in runs)


def _enqueue(plan: Plan, repeat: int) -> Iterator[Row]:
    alone = replace(plan, consumers=0, producers=4, scheme="auto")
    mixed = replace(alone, consumers=4, backlog=200, puts=True)
    runs = _runs(
        {
            "enqueue": alone,
            "plain recipe": replace(alone, scheme="plain recipe"),
            "beside first": replace(mixed, scheme="first"),
            "beside staged": replace(mixed, scheme="staged"),
            "enqueue of 100": replace(alone, batch=100),
            "blind sets of 100": replace(alone, scheme=measure.SETS, batch=100),
        },
        repeat,
    )
    mixes = "enqueue", "beside first", "beside staged"
    conflicts = sum(one.conflicts for name in mixes for one in runs[name])
    plain = _ratio(runs, "enqueue", "plain recipe")
    sets = _ratio(runs, "enqueue of 100", "blind sets of 100")
    yield at_most("enqueue: conflicts, alone and in any mix", conflicts, 0)
    yield at_least("enqueue: rate to that of the plain recipe", plain, 0.6)
    yield at_least("enqueue of 100: rate to that of blind sets", sets, 0.5)


def _dequeue(plan: Plan, repeat: int) -> Iterator[Row]:
    filled = _filled(plan)
    published = replace(filled, scheme="published staged")
    runs = _runs({"staged": filled, "published": published}, repeat)
    staged, times = runs["staged"], _ratio(runs, "staged", "published")
    yield at_most("staged: commits per message", _middle(staged, "commits_per_message"), 2.3)
    yield at_most("staged: attempts per commit", _middle(staged, "attempts_per_success"), 1.1)
    yield at_least("staged, receive and ack: rate to that of published staged pops", times, 2.0)
    yield at_most("staged: most to least served", _middle(staged, "most_to_least"), 1.5)
    yield at_most("staged: p99 to p50", _tails(staged), 10)


def _few(plan: Plan, repeat: int) -> Iterator[Row]:
    filled = _filled(replace(plan, scheme="auto"))
    runs = _runs({f"few: {n}": replace(filled, consumers=n) for n in FEW}, repeat)
    for count in FEW[1:]:
        name, who = f"few: {count}", f"{count} consumers"
        together = runs[name]
        yield at_least(f"{who}: rate to that of one", _ratio(runs, name, "few: 1"), 1.0)
        yield at_most(f"{who}: commits per message", _middle(together, "commits_per_message"), 1.3)
        yield at_most(f"{who}: most to least served", _middle(together, "most_to_least"), 1.5)
        yield at_most(f"{who}: p99 to p50", _tails(together), 10)


def _batches(plan: Plan, repeat: int) -> Iterator[Row]:
    runs = _runs({"1": _filled(plan), "100": replace(_filled(plan, 8 * RATE), batch=100)}, repeat)
    times = _ratio(runs, "100", "1")
    yield at_least("batches of 100: rate to that of single messages", times, 10)


def _backlog(plan: Plan, repeat: int) -> Iterator[Row]:
    few, many = measure.backlog(DEPTHS, operations=1_000)
    yield at_most(f"backlog: cost at {DEPTHS[1]:,} ready to that at 1,000", many / few, 1.3)


GROUPS: dict[str, Callable[[Plan, int], Iterator[Row]]] = {
    "enqueue": _enqueue,
    "dequeue": _dequeue,
    "few": _few,
    "batches": _batches,
    "backlog": _backlog,
}
