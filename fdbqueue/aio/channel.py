"""The channel of asyncio."""

from __future__ import annotations

from functools import partial

from ..consumers.credit import Credit
from ..values.durations import Seconds
from ..worker.channel import Channel as BlockingChannel
from .driver import run
from .twins import Twin


class Channel(Twin):
    """The credit of queues and subscriptions: the twin of ``fdbqueue.Channel``."""

    blocking: BlockingChannel

    def __init__(self, credit: Credit) -> None:
        super().__init__(BlockingChannel(credit))

    @property
    def credit(self) -> Credit:
        """The credit as it is now."""
        return self.blocking.credit

    def grant(self, messages: int | None = None, bytes: int | None = None) -> None:
        """Let the worker take more, as ``fdbqueue.Channel.grant``."""
        self.blocking.grant(messages, bytes)

    def withdraw(self) -> None:
        """Let the worker take no more until more is granted."""
        self.blocking.withdraw()

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Deliver what is there, as ``fdbqueue.Channel.flush``."""
        await run(partial(self.blocking.flush, timeout))
