"""What a producer holds: messages in the order in which they were sent, within bounds.

Threads put messages in, first come, first served. One thread takes them out, batch by batch.

Threads that wait for their messages send the next ones when a batch is done. The next batch would
begin with those that were sent before, and the others would share another one: two commits, where
one is enough. So a batch waits for those threads, for a part of the time that the last one took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from ...errors import ProducerClosed, ProducerFull
from ...messages.enqueue.admission import Draft
from ...messages.transaction_budget import STEP_BYTES
from ...store import tasks, world

_NEVER = float("inf")
LINGER_SHARE = 0.25
LINGER_SECONDS = 0.02
"""For which part of the time that a batch took the next one waits, and for how long at most."""


@dataclass(slots=True, eq=False)
class Sent:
    """One message that was sent, which takes ``size`` bytes.

    at: when it was taken in, in seconds of the monotonic clock. refused: whether the producer was
    closed while its sender waited for room.
    """

    given: Draft
    size: int
    future: Future[str] = field(default_factory=Future)
    at: float = 0.0
    entered: tasks.Event | None = None
    refused: bool = False


class PendingMessages:
    """Messages that were sent and are neither stored nor failed.

    linger: seconds that a message waits for others; None to wait, after a batch, for those whose
    messages it had. max_batch: messages in a batch.
    max_messages, max_bytes: what is held at most; a single message of any size is held if there is
    no other.
    """

    def __init__(
        self, linger: float | None, max_batch: int, max_messages: int, max_bytes: int
    ) -> None:
        self.linger = linger
        self.max_batch = max_batch
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.messages = self.size = 0
        """What is held, with the batch that was taken out and is not done."""
        self.closed = False
        """Whether no message is taken in any more."""
        self.given_up = False
        """Whether no message is to be stored any more."""
        self._waiting: deque[Sent] = deque()
        self._waiting_size = 0
        self._line: deque[Sent] = deque()
        """Messages for which there was no room, in their order."""
        self._entered = self._done = 0
        """How many messages were ever taken in, and how many are done: the first ones."""
        self._wanted = 0
        """Up to which of them somebody waits for."""
        self._begun_at = 0.0
        """When the last batch was taken out, in seconds of the monotonic clock."""
        self._expected = 0
        """How many messages there may be soon after the last batch, and until when that is."""
        self._expected_until = 0.0
        self._wakes_at = 0.0
        """Until when the thread that takes sleeps; 0 while it does not."""
        self._lock = world.Lock()
        self._arrived = world.Condition(self._lock)
        self._changed = tasks.Event()
        """Set when the next batch is done."""

    def put(self, sent: Sent, timeout: float) -> None:
        """Take a message in; waits for room.

        Raises ``ProducerFull`` after ``timeout`` seconds, and ``ProducerClosed``.
        """
        with self._lock:
            if self.closed:
                raise ProducerClosed
            # Whoever finds others waiting joins them, even if its own message would fit: first
            # come, first served.
            if not self._line and self._fits(sent):
                self._enter(sent)
                return
            if timeout <= 0:
                raise self._full()
            sent.entered = tasks.Event()
            self._line.append(sent)
            self._rouse()
        try:
            sent.entered.wait(min(timeout, world.TIMEOUT_MAX))
        finally:
            # Also after an interrupt.
            with self._lock:
                outside = not sent.entered.is_set()
                if outside:
                    self._line.remove(sent)
                    self._admit()
        if outside:
            raise self._full()
        if sent.refused:
            raise ProducerClosed

    def take(self) -> list[Sent]:
        """The next batch, once it is due; empty when the producer is closed and nothing is left."""
        with self._lock:
            while (at := self._due_at()) > (now := world.monotonic()):
                if not self._waiting and self._expected > 1 and self._expected_until > now:
                    at = self._expected_until  # The first to send until then need not wake anybody.
                self._wakes_at = at
                self._arrived.wait(None if at == _NEVER else at - now)
            self._wakes_at, self._begun_at = 0.0, now
            batch: list[Sent] = []
            room = STEP_BYTES
            while self._waiting and len(batch) < self.max_batch:
                room -= self._waiting[0].size
                if batch and room < 0:
                    break
                batch.append(self._waiting.popleft())
            self._waiting_size -= sum(sent.size for sent in batch)
            return batch

    def expect(self, count: int) -> None:
        """So many messages are stored, and their senders are told next."""
        with self._lock:
            now = world.monotonic()
            self._expected = count + len(self._waiting)
            longest = min(LINGER_SECONDS, LINGER_SHARE * (now - self._begun_at))
            self._expected_until = now + longest

    def done(self, batch: Sequence[Sent]) -> None:
        """What was taken out is stored, or has failed: there is room for others."""
        with self._lock:
            self._done += len(batch)
            self.messages -= len(batch)
            self.size -= sum(sent.size for sent in batch)
            self._admit()
            # A fresh event for the next batch: whoever waits for this one cannot miss that it was
            # set.
            changed, self._changed = self._changed, tasks.Event()
        changed.set()

    def wait(self, timeout: float | None) -> int:
        """Wait until all that is held now is done; returns how many messages are not."""
        deadline = None if timeout is None else world.monotonic() + timeout
        with self._lock:
            wanted = self._entered
            self._wanted = max(self._wanted, wanted)
            self._rouse()
        while True:
            with self._lock:
                changed = self._changed
                unfinished = self.messages if self.given_up else max(0, wanted - self._done)
            left = None if deadline is None else deadline - world.monotonic()
            if not unfinished or (left is not None and left <= 0):
                return unfinished
            changed.wait(left)

    def close(self) -> None:
        """Take in no more; who waits for room is refused."""
        with self._lock:
            self.closed = True
            while self._line:
                sent = self._line.popleft()
                sent.refused = True
                assert sent.entered is not None
                sent.entered.set()
            self._rouse()

    def give_up(self) -> list[Sent]:
        """Close, and take out what was not begun: nothing more is to be stored."""
        self.close()
        with self._lock:
            self.given_up = True
            left, self._waiting = list(self._waiting), deque()
            self._waiting_size = 0
            return left

    def _due_at(self) -> float:
        """When the next batch is due, in seconds of the monotonic clock."""
        waiting = len(self._waiting)
        if not waiting:
            return 0.0 if self.closed else _NEVER
        full = waiting >= self.max_batch or self._waiting_size >= STEP_BYTES
        # With somebody in line the bounds are full: lingering could gather no more.
        if full or self.closed or self._line or self._done < self._wanted:
            return 0.0
        if self.linger is not None:
            return self._waiting[0].at + self.linger
        return self._expected_until if waiting < self._expected else 0.0

    def _fits(self, sent: Sent) -> bool:
        # A message larger than all the room is let in when nothing else is held; it would wait for
        # ever.
        return not self.messages or (
            self.messages < self.max_messages and self.size + sent.size <= self.max_bytes
        )

    def _enter(self, sent: Sent) -> None:
        sent.at = world.monotonic()
        self._waiting.append(sent)
        self._waiting_size += sent.size
        self._entered += 1
        self.messages += 1
        self.size += sent.size
        self._rouse()

    def _admit(self) -> None:
        """Let in those for whom there is room now, in their order."""
        while self._line and self._fits(self._line[0]):
            sent = self._line.popleft()
            self._enter(sent)
            assert sent.entered is not None
            sent.entered.set()

    def _rouse(self) -> None:
        """Wake the thread that takes, if it sleeps for too long."""
        if self._wakes_at and self._due_at() < self._wakes_at:
            # In this order: who is interrupted between them has woken it.
            self._arrived.notify()
            self._wakes_at = 0.0

    def _full(self) -> ProducerFull:
        return ProducerFull(
            messages=self.messages,
            max_messages=self.max_messages,
            size=self.size,
            max_bytes=self.max_bytes,
        )
