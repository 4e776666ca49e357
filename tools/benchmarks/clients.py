"""What every queue that is measured can do, and whether its messages are all accounted for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

NAME = "bench"
"""The name of the queue, table or stream."""
PAYLOAD_BYTES = 100


class Client:
    """A connection of one process to a queue, which it creates if it does not exist.

    It has ``put``, ``enqueue`` or both.
    """

    def put(self, payloads: Sequence[bytes]) -> None:
        """Enqueue messages in one call, if one takes several; returns when they are as durable as
        the queue makes them."""
        for payload in payloads:
            self.enqueue(payload)

    def enqueue(self, payload: bytes) -> None:
        """As ``put``, for a single message."""
        self.put([payload])

    def take(self, most: int) -> Sequence[bytes]:
        """Receive and settle up to ``most`` messages; nothing if the queue is empty."""
        raise NotImplementedError

    def finish(self) -> Sequence[bytes]:
        """Acknowledge what was taken last, if the next ``take`` would; returns those whose lease
        was lost."""
        return ()

    def rest(self) -> Sequence[bytes]:
        """All messages still in the queue; may take them."""
        found: list[bytes] = []
        while taken := self.take(100):
            found += taken
        return found


def payload(number: int) -> bytes:
    """A payload that holds a number, as text, which every queue takes."""
    return b"%0*d" % (PAYLOAD_BYTES, number)


class Account:
    """Which messages went in, and which came out.

    lost: acknowledged enqueues that were neither received nor left at the end. doubled: messages
    received more than once, or received and left, or that never went in.
    """

    def __init__(self) -> None:
        self.next = self.lost = self.doubled = 0
        self.put: set[int] = set()
        self.taken: Counter[int] = Counter()

    def numbers(self, count: int) -> int:
        """Reserve numbers for ``count`` messages; returns the first."""
        self.next += count
        return self.next - count

    def settle(self, rest: Sequence[int]) -> None:
        """Count what was lost and doubled, given what is left in the queue."""
        seen = self.taken + Counter(rest)
        self.lost += sum(number not in seen for number in self.put)
        self.doubled += sum(count - (number in self.put) for number, count in seen.items())


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile of the values; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
