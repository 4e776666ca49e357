"""Flow control: how many messages and bytes a consumer may hold.

After AMQP 0-10 and Qpid's credit managers. In window mode a settled message gives its credit back;
in explicit mode credit is used up, and the consumer grants more. A message that does not fit waits,
for credit or for another consumer. In window mode a consumer that holds nothing always gets one
message, of any size, as AMQP 0-9 demands of a prefetch-size ("it does not limit the transfer of
single messages"). In explicit mode, as in AMQP 0-10, no message exceeds the credit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import InvalidArgument
from ..values.records import record


@record
class Credit:
    """How much a consumer may hold, and holds. A value: every change gives a new one.

    messages, bytes: the limits, of payloads in bytes; None for no limit.
    window: whether settling a message gives its credit back.
    """

    messages: int | None = None
    bytes: int | None = None
    window: bool = True
    used_messages: int = 0
    used_bytes: int = 0

    def __post_init__(self) -> None:
        for argument in ("messages", "bytes"):
            value = getattr(self, argument)
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidArgument(
                    argument=argument, value=value, problem="must be an int, 0 or more, or None"
                )
        if self.window and 0 in (self.messages, self.bytes):
            raise InvalidArgument(
                argument="credit", value=self, problem="a window of nothing never opens"
            )

    def room(self, most: int) -> int:
        """How many messages to demand, at most ``most``; 0 without credit."""
        if not self._fits(0 if self.bytes is None else 1):
            return 0
        return (
            most if self.messages is None else min(most, max(0, self.messages - self.used_messages))
        )

    def admits(self, sizes: Iterable[int]) -> int:
        """How many of the first messages fit the credit, given their sizes in bytes."""
        count, left = 0, self
        for size in sizes:
            if not left.room(1) or not left._fits(size):
                break
            count, left = count + 1, left.taken(size)
        return count

    def taken(self, *sizes: int) -> Credit:
        """The credit after messages of so many bytes were handed over."""
        return self._used(len(sizes), sum(sizes))

    def settled(self, *sizes: int) -> Credit:
        """The credit after messages of so many bytes were settled, or given back."""
        return self._used(-len(sizes), -sum(sizes)) if self.window and sizes else self

    def _used(self, messages: int, size: int) -> Credit:
        used = self.used_messages + messages, self.used_bytes + size
        return replace(self, used_messages=used[0], used_bytes=used[1])

    def granted(self, messages: int = 0, bytes: int = 0) -> Credit:
        """The credit after more was granted; a limit that is None stays None."""
        return replace(
            self,
            messages=None if self.messages is None else self.messages + messages,
            bytes=None if self.bytes is None else self.bytes + bytes,
        )

    @property
    def _lets_one_through(self) -> bool:
        return self.window and self.used_messages == 0

    def _fits(self, size: int) -> bool:
        if self.bytes is None or self._lets_one_through:
            return True
        return self.used_bytes + size <= self.bytes
