"""From a run that fails to a small one that fails alike.

What a seed chooses is taken away piece by piece, as delta debugging does (Zeller and Hildebrandt,
2002), and the number of operations is halved. To take a piece away changes all that chance decides
behind it, so other seeds are tried, too: a smaller run counts if one of a few seeds fails alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from .run import PARTS, Settings

TRIES = 8
"""Seeds that a smaller run is tried with."""

Outcomes = Callable[[Settings, Iterable[int]], Iterator[dict[str, Any]]]


def shrink(
    settings: Settings, outcome: dict[str, Any], outcomes: Outcomes
) -> tuple[Settings, dict[str, Any]]:
    """The settings of the smallest run that was found, and what came of it."""
    kind = _kind(outcome)
    found, size = (settings, outcome), len(PARTS)
    if kind not in ("idle", "left"):
        found = _tried(replace(settings, idle=0.0), kind, outcomes) or found
    while True:
        for smaller in _smaller(found[0], size):
            better = _tried(smaller, kind, outcomes)
            if better is not None:
                found = better
                print(
                    f"{kind}: {found[0].operations} operations, without "
                    f"{len(found[0].without)} of {len(PARTS)} parts",
                    file=sys.stderr,
                )
                break
        else:
            if size == 1:
                return found
            size = (size + 1) // 2


def _kind(outcome: dict[str, Any]) -> str:
    problem: str = outcome["problems"][0]
    return problem.partition(":")[0]


def _smaller(settings: Settings, size: int) -> Iterator[Settings]:
    """Runs that do less: half of the operations, or without so many more parts."""
    if settings.operations > 1:
        yield replace(settings, operations=settings.operations // 2)
    left = [each for each in PARTS if each not in settings.without]
    for begin in range(0, len(left), size):
        yield replace(settings, without=settings.without | {*left[begin : begin + size]})


def _tried(
    settings: Settings, kind: str, outcomes: Outcomes
) -> tuple[Settings, dict[str, Any]] | None:
    """A run with these settings that fails alike, with whatever seed."""
    seeds = range(settings.seed, settings.seed + TRIES)
    for outcome in outcomes(settings, seeds):
        if outcome["problems"] and _kind(outcome) == kind:
            return replace(settings, seed=outcome["seed"]), outcome
    return None
