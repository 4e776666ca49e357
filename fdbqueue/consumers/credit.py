"""Flow control: how many messages and bytes a consumer may hold, or take.

After AMQP 0-10 and Qpid's credit managers. In window mode a settled message gives its credit back;
in explicit mode credit is used up, and the consumer grants more. A message that does not fit waits,
for credit or for another consumer. A message that never could is delivered alone, to a consumer
that holds nothing, as AMQP 0-9 demands of a prefetch-size ("it does not limit the transfer of
single messages"). In window mode that is whatever comes first; in explicit mode a message larger
than all that was there after the last grant. What it takes beyond the credit is owed.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from ..errors import InvalidArgument
from ..values.content import check_flag


class Credit(Struct, frozen=True):
    """How much a consumer may hold, and holds. A value: every change gives a new one.

    messages, bytes: the limits, of payloads in bytes; None for no limit. Zero only without a
        window, until more is granted.
    window: whether settling a message gives its credit back; otherwise it is used up.
    used_messages, used_bytes: of the limits. held: messages that are not settled. spent_bytes:
        of ``used_bytes``, those before the last grant.
    """

    messages: int | None = None
    bytes: int | None = None
    window: bool = True
    used_messages: int = 0
    used_bytes: int = 0
    held: int = 0
    spent_bytes: int = 0

    def __post_init__(self) -> None:
        for argument in ("messages", "bytes"):
            value = getattr(self, argument)
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidArgument(
                    argument=argument, value=value, problem="must be an int, 0 or more, or None"
                )
        check_flag("window", self.window)
        if self.window and 0 in (self.messages, self.bytes):
            raise InvalidArgument(
                argument="credit", value=self, problem="a window of nothing never opens"
            )
        if not self.window and self.messages is None and self.bytes is None:
            raise InvalidArgument(
                argument="credit", value=self, problem="without a window it needs a limit"
            )

    def room(self, most: int) -> int:
        """How many messages to demand, at most ``most``; 0 without credit."""
        if not self._fits(0 if self.bytes is None else 1):
            return 0
        return (
            most if self.messages is None else min(most, max(0, self.messages - self.used_messages))
        )

    @property
    def room_bytes(self) -> int | None:
        """How many bytes of messages fit; None for any number."""
        return None if self.bytes is None else max(0, self.bytes - self.used_bytes)

    @property
    def admits_above(self) -> int | None:
        """Of more than how many bytes one message may be that does not fit; None if none may."""
        # Something is held, so credit may come back: what does not fit now may fit later.
        if self.bytes is None or self.held:
            return None
        if self.window:
            return 0
        return self.bytes - self.spent_bytes if self.bytes > self.used_bytes else None

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be taken until more is granted."""
        return not self.window and not self.room(1)

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

    def returned(self, *sizes: int) -> Credit:
        """The credit after messages of so many bytes went back before anything was done."""
        return self._used(-len(sizes), -sum(sizes))

    def settled(self, *sizes: int) -> Credit:
        """The credit after messages of so many bytes were settled."""
        return self.returned(*sizes) if self.window else replace(self, held=self.held - len(sizes))

    def _used(self, messages: int, size: int) -> Credit:
        return replace(
            self,
            used_messages=self.used_messages + messages,
            used_bytes=self.used_bytes + size,
            held=self.held + messages,
        )

    def granted(self, messages: int = 0, bytes: int = 0) -> Credit:
        """The credit after more was granted; a limit that is None stays None."""
        return replace(
            self,
            messages=None if self.messages is None else self.messages + messages,
            bytes=None if self.bytes is None else self.bytes + bytes,
            # What was there after the last grant decides whether a message is too large to fit
            # ever.
            spent_bytes=self.used_bytes,
        )

    def withdrawn(self) -> Credit:
        """The credit without what is left of it."""
        return replace(
            self,
            messages=None if self.messages is None else min(self.messages, self.used_messages),
            bytes=None if self.bytes is None else min(self.bytes, self.used_bytes),
        )

    def _fits(self, size: int) -> bool:
        if self.bytes is None:
            return True
        left = self.bytes - self.used_bytes
        if size <= left or self.held:
            return size <= left
        return self.window or (left > 0 and size > self.bytes - self.spent_bytes)
