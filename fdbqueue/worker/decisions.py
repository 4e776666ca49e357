"""What a worker decides: pure functions over plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, takewhile

from msgspec import Struct

RUN = 10
"""How many messages of one queue are handled in a row while others wait, by default: Qpid's
bounded delivery run, so that one queue does not starve another."""
AHEAD_SECONDS = 0.05
REFRESH_SECONDS = 0.05
"""How long a look for more urgent messages counts, unless a number of messages is agreed."""
MAX_AHEAD = 100
"""The most messages that one transaction takes, but for a larger batch; and the most that are taken
ahead of fast handlers."""


class QueueTurn(Struct, frozen=True):
    """Whose turn it is: the number of a queue, and how many messages are left of its run."""

    queue: int = 0
    left: int = 0


def next_turn(turn: QueueTurn, waiting: Sequence[bool], runs: Sequence[int]) -> QueueTurn | None:
    """The turn after which one message of ``turn.queue`` is handled; None if nothing waits.

    waiting: which queues have prefetched messages. runs: the bounded run of each queue.

    Round robin: a queue keeps its turn until its run is over, or it has nothing prefetched.
    """
    if turn.left > 0 and waiting[turn.queue]:
        return QueueTurn(turn.queue, turn.left - 1)
    count = len(waiting)
    start = turn.queue + 1 if turn.left <= 0 or not waiting[turn.queue] else turn.queue
    for offset in range(count):
        queue = (start + offset) % count
        if waiting[queue]:
            return QueueTurn(queue, runs[queue] - 1)
    return None


def window(least: int, handlers: int, seconds: float) -> int:
    """How many messages of a queue to hold: what the handlers finish in ``AHEAD_SECONDS``.

    least: what keeps all handlers busy, and is held in any case.
    seconds: how long a handler takes for one message.

    So the commits of fast handlers carry many messages, and nothing waits for slow ones that a
    free consumer could handle.
    """
    return max(least, int(min(MAX_AHEAD, AHEAD_SECONDS * handlers / max(seconds, 1e-6))))


def should_fetch(room: int, window: int, prefetched: int) -> bool:
    """Whether to fetch more: not one by one while something is prefetched."""
    # A fetch for each free place would be a commit for each message.
    return room > 0 and (prefetched == 0 or 2 * room >= window)


def outranked(ready: Iterable[int], prefetched: Iterable[int], room: int = 0) -> int:
    """How many prefetched messages, the least urgent ones, to exchange for ready ones.

    ready: the levels of the first ready messages, in order; 0 is the most urgent. room: how many of
    those fit beside what is prefetched.
    """
    pairs = zip(islice(ready, room, None), sorted(prefetched, reverse=True), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] < pair[1], pairs))


def extend_every(leases: Iterable[float]) -> float:
    """Seconds between two extensions of leases: two may fail before one of them expires."""
    return max(0.05, min(leases) / 3)


def expires_soon(age: float, lease: float) -> bool:
    """Whether to extend a lease that was renewed ``age`` seconds ago at most, by the monotonic
    clock: half of its time may be over."""
    return age >= lease / 2
