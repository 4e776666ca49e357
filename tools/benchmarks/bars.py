"""The figures that the project promises. Ratios are between alternating runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from . import measure
from .measure import Figures, Plan

DEPTHS = (1_000, 1_000_000)
RATE = 2_500
"""More messages per second than any scheme takes here, so that no queue runs empty."""


@dataclass(frozen=True)
class Bar:
    """A figure and its limit."""

    name: str
    figure: float
    bar: float
    at_most: bool

    @property
    def holds(self) -> bool:
        return self.figure <= self.bar if self.at_most else self.figure >= self.bar

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


Runs = dict[str, list[Figures]]


def run(
    plan: Plan, repeat: int, groups: Sequence[str] | None, say: Callable[[str], object]
) -> tuple[list[Bar], Runs]:
    """Run the benchmarks of the groups; returns the bars and all runs."""
    runs: Runs = defaultdict(list)
    bars: list[Bar] = []
    for group in groups or GROUPS:
        for n in range(1 if group in ("backlog", "faults") else repeat):
            say(f"{group}, {n + 1} …")
            GROUPS[group][0](plan, runs)
        bars += GROUPS[group][1](runs)
    return bars, runs


def middle(runs: Sequence[Figures], name: str) -> float:
    return float(median(getattr(one, name) for one in runs))


def _ratio(runs: Runs, one: str, other: str, name: str = "rate") -> float:
    return float(
        median(
            getattr(a, name) / max(1e-9, getattr(b, name))
            for a, b in zip(runs[one], runs[other], strict=True)
        )
    )


def _backlog(plan: Plan, rate: float = RATE) -> int:
    return int((plan.seconds + plan.warm_up) * rate)


# -- enqueue --------------------------------------------------------------------------------------


def _run_enqueue(plan: Plan, runs: Runs) -> None:
    alone = replace(plan, consumers=0, producers=4)
    runs["enqueue"].append(measure.queue(replace(alone, scheme="auto")))
    runs["enqueue, plain"].append(measure.queue(replace(alone, scheme="plain recipe")))
    for scheme in ("first", "staged"):
        mixed = replace(plan, scheme=scheme, consumers=4, producers=4, backlog=200)
        runs["enqueue, mixed"].append(measure.queue(mixed))
    runs["enqueue of 100"].append(measure.queue(replace(alone, scheme="auto", batch=100)))
    runs["blind sets of 100"].append(measure.limit("set", replace(plan, consumers=4, batch=100)))


def _judge_enqueue(runs: Runs) -> list[Bar]:
    conflicts = sum(one.put_conflicts for one in runs["enqueue"] + runs["enqueue, mixed"])
    sets = median(
        a.put_rate / b.rate
        for a, b in zip(runs["enqueue of 100"], runs["blind sets of 100"], strict=True)
    )
    return [
        Bar("enqueue: conflicts, alone and in any mix", conflicts, 0, True),
        Bar(
            "enqueue: rate to that of the plain recipe",
            _ratio(runs, "enqueue", "enqueue, plain", "put_rate"), 0.6, False,
        ),
        Bar("enqueue of 100: rate to that of blind sets", sets, 0.5, False),
    ]  # fmt: skip


# -- dequeue --------------------------------------------------------------------------------------


def _run_dequeue(plan: Plan, runs: Runs) -> None:
    for scheme in ("staged", "published staged", "plain recipe", "auto"):
        filled = replace(plan, scheme=scheme, backlog=_backlog(plan))
        runs[scheme].append(measure.queue(filled))
    runs["limit: sets"].append(measure.limit("set", plan))
    runs["limit: clears"].append(measure.limit("clear", plan))


def _judge_dequeue(runs: Runs) -> list[Bar]:
    staged = runs["staged"]
    return [
        Bar("staged: commits per message", middle(staged, "commits_per_message"), 2.3, True),
        Bar("staged: attempts per commit", middle(staged, "attempts_per_success"), 1.1, True),
        Bar(
            "staged, receive and ack: rate to that of published staged pops",
            _ratio(runs, "staged", "published staged"), 2.0, False,
        ),
        Bar("staged: order violations", max(r.order_violations for r in staged), 0, True),
        Bar("staged: most to least served", middle(staged, "most_to_least"), 1.5, True),
        Bar(
            "staged: p99 to p50",
            float(median(r.p99_ms / max(1e-9, r.p50_ms) for r in staged)), 10, True,
        ),
    ]  # fmt: skip


# -- few consumers --------------------------------------------------------------------------------

FEW = (1, 2, 4, 8)


def _run_few(plan: Plan, runs: Runs) -> None:
    filled = replace(plan, scheme="auto", producers=0, backlog=_backlog(plan))
    for consumers in FEW:
        runs[f"few: {consumers}"].append(measure.queue(replace(filled, consumers=consumers)))


def _judge_few(runs: Runs) -> list[Bar]:
    bars = []
    for count in FEW[1:]:
        name, who = f"few: {count}", f"{count} consumers"
        together = runs[name]
        tails = [one.p99_ms / max(1e-9, one.p50_ms) for one in together]
        violations = max(one.order_violations for one in together)
        bars += [
            Bar(f"{who}: rate to that of one", _ratio(runs, name, "few: 1"), 1.0, False),
            Bar(f"{who}: commits per message", middle(together, "commits_per_message"), 1.3, True),
            Bar(f"{who}: most to least served", middle(together, "most_to_least"), 1.5, True),
            Bar(f"{who}: p99 to p50", float(median(tails)), 10, True),
            Bar(f"{who}: order violations", violations, 0, True),
        ]
    return bars


# -- batches --------------------------------------------------------------------------------------


def _run_batches(plan: Plan, runs: Runs) -> None:
    for batch in (1, 100):
        backlog = _backlog(plan, RATE * (1 if batch == 1 else 8))
        one = replace(plan, scheme="staged", batch=batch, backlog=backlog)
        runs[f"batches of {batch}"].append(measure.queue(one))


def _judge_batches(runs: Runs) -> list[Bar]:
    ratio = _ratio(runs, "batches of 100", "batches of 1")
    return [Bar("batches of 100: rate to that of single messages", ratio, 10, False)]


# -- backlog --------------------------------------------------------------------------------------

_depths: list[dict[str, float]] = []


def _run_backlog(plan: Plan, runs: Runs) -> None:
    _depths[:] = measure.backlog(DEPTHS, operations=1_000)


def _judge_backlog(runs: Runs) -> list[Bar]:
    few, many = _depths
    ratio = many["mean_ms"] / few["mean_ms"]
    return [Bar(f"backlog: cost at {DEPTHS[1]:,} ready to that at 1,000", ratio, 1.3, True)]


# -- faults ---------------------------------------------------------------------------------------


def _run_faults(plan: Plan, runs: Runs) -> None:
    for scheme in ("first", "auto", "staged"):
        hard = replace(plan, scheme=scheme, producers=2, backlog=_backlog(plan), faults=0.01)
        runs["with faults"].append(measure.queue(hard))


def _judge_faults(runs: Runs) -> list[Bar]:
    # A run that loses or duplicates a message raises, so these runs have not.
    return [
        Bar("runs with faults that lost and duplicated nothing", len(runs["with faults"]), 4, False)
    ]


GROUPS: dict[str, tuple[Callable[[Plan, Runs], None], Callable[[Runs], list[Bar]]]] = {
    "enqueue": (_run_enqueue, _judge_enqueue),
    "dequeue": (_run_dequeue, _judge_dequeue),
    "few": (_run_few, _judge_few),
    "batches": (_run_batches, _judge_batches),
    "backlog": (_run_backlog, _judge_backlog),
    "faults": (_run_faults, _judge_faults),
}
"""For each group, a function that runs its benchmarks, and one that computes its bars."""
