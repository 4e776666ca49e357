"""What is compared takes turns, so that other load on the machine affects all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")


def in_turn(rounds: int, ways: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """What each way has given, by round.

    Every other round goes backwards: what one leaves to be done, such as a checkpoint, does not
    always fall to the same.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    for n in range(rounds):
        for name in [*ways][:: -1 if n % 2 else 1]:
            found[name].append(ways[name]())
    return found


def ratio(some: Sequence[float], others: Sequence[float]) -> float:
    """The median ratio of figures of the same rounds."""
    return median(one / max(1e-9, other) for one, other in zip(some, others, strict=True))
