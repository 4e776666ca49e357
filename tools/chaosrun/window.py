"""Order in a relaxed queue: whoever receives is given one of the first messages of the window.

A message that was taken stood, at some instant of the call, behind fewer messages than the window
has: so fewer than that stood before it all the while. A dequeue takes the first of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from .history import Operation
from .ordering import standing
from .place import QUEUES
from .view import Taken, Told, View
from .violations import Violation, violation

RELAXED = tuple(name for name, options in QUEUES.items() if options.get("contention") == "relaxed")


def within_window(view: View) -> Iterator[Violation]:
    """Nothing is taken from behind the window."""
    for queue in RELAXED:
        stood = sorted(standing(view, queue), key=itemgetter(0))
        there: list[tuple[float, float, Told]] = []
        n = 0
        for told, taken in sorted(_taken(view, queue), key=lambda each: each[1].began):
            while n < len(stood) and stood[n][0] < taken.began:
                there.append(stood[n])
                n += 1
            there = [each for each in there if each[1] > taken.began]
            before = [
                other
                for _, until, other in there
                if until > taken.ended and (other.id or "") < taken.id
            ]
            if before and len(before) >= (room := _room(view, queue, taken.operation)):
                text = f"{queue}: {told.tag} was taken before {len(before)} others of {room - 1}"
                operations = [taken.operation, *(each.operation for each in before[:3])]
                yield violation("behind the window", text, [told.operation, *operations])


def _taken(view: View, queue: str) -> Iterator[tuple[Told, Taken]]:
    for key, taken in view.taken.items():
        told = view.told.get(key)
        if key[0] == queue and told is not None and told.in_order:
            yield from ((told, one) for one in taken if not view.disturbed(one.operation))


def _room(view: View, queue: str, one: Operation) -> int:
    """From among how many first messages it may have taken, at the most."""
    if one.name == "dequeue":
        return 1
    window: int = QUEUES[queue]["window"]
    sizes: list[int] = []
    for change in view.options.get(queue, []):
        if change.began > (one.ended or 0):
            break
        if "window" not in change.what:
            continue
        size = change.what["window"]
        if change.ok and change.ended is not None and change.ended < one.began:
            window, sizes = size, []
        else:
            sizes.append(size)
    return max(window, one.what.get("limit") or 1, *sizes)
