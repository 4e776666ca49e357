"""The queue of asyncio, and its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, Self

from ..queue import batch, dead_letters, jobs, line, queue, subscription
from ..queue.admin import admin
from ..queue.bulk import producer
from ..queue.continuations import groups
from ..queue.keys import message_keys, shared_limits
from ..queue.schedules import schedules
from ..queue.streams import imports, plans, sinks, streams
from ..queue.subscription import subscriptions
from ..values.durations import Seconds
from ..values.model import Delivery
from .driver import run
from .twins import Twin, to_twin, twin


@twin(queue.Queue)
class Queue(Twin):
    """A queue: the twin of ``fdbqueue.Queue``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(queue.Queue(*args, **kwargs))

    def job(self, function: Any = None, *, name: str | None = None) -> Any:
        """Make a function a job, see ``fdbqueue.Queue.job``; it may be a coroutine function."""
        made = self.blocking.job(function, name=name)
        return to_twin(made) if function else lambda function: to_twin(made(function))


@twin(jobs.Job)
class Job(Twin):
    """A function that workers call for messages of a queue; made by ``Queue.job``."""

    blocking: jobs.Job[Any, Any]

    @property
    def name(self) -> str:
        """What its messages say, in the header ``job``."""
        return self.blocking.name

    def __call__(self, *given: Any) -> Any:
        return self.blocking(*given)


@twin(subscription.Subscription)
class Subscription(Twin):
    """A subscription: the twin of ``fdbqueue.Subscription``."""


@twin(subscriptions.Subscriptions)
class Subscriptions(Twin):
    """The subscriptions of a queue."""


@twin(dead_letters.DeadLetters)
class DeadLetters(Twin):
    """The dead letters of a queue."""


@twin(streams.Streams)
class Streams(Twin):
    """What imports need of a queue, and Spark."""


@twin(plans.Plans)
class Plans(Twin):
    """The plans of a queue."""


@twin(message_keys.Keys)
class Keys(Twin):
    """The keys of a queue."""

    blocking: message_keys.Keys

    def __getitem__(self, key: str) -> Key:
        return Key.of(self.blocking[key])


@twin(message_keys.Key)
class Key(Twin):
    """One key of a queue."""


@twin(shared_limits.Limits)
class Limits(Twin):
    """The limits that the queues of a root share."""

    blocking: shared_limits.Limits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(shared_limits.Limits(*args, **kwargs))

    def __getitem__(self, limit: tuple[str, str]) -> SharedLimit:
        return SharedLimit.of(self.blocking[limit])


@twin(shared_limits.SharedLimit)
class SharedLimit(Twin):
    """One limit that queues share."""


@twin(schedules.Schedules)
class Schedules(Twin):
    """The schedules of a queue."""


@twin(groups.Groups)
class Groups(Twin):
    """The groups of a queue."""


@twin(admin.Admin)
class Admin(Twin):
    """What operators do to a queue."""


@twin(line.Line)
class Line(Twin):
    """The line of a queue."""


@twin(batch.Batch)
class Batch(Twin):
    """A sequence of deliveries, for ``async with``: the twin of ``fdbqueue.Batch``."""

    blocking: batch.Batch[Any]

    def __len__(self) -> int:
        return len(self.blocking)

    def __getitem__(self, n: int | slice) -> Any:
        return to_twin(self.blocking[n])

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self.blocking)

    async def __aenter__(self) -> Self:
        self.blocking.__enter__()
        return self

    async def __aexit__(self, *how: Any) -> None:
        await run(lambda: self.blocking.__exit__(*how))


@twin(sinks.Sink)
class Sink(Twin):
    """A stream of numbered batches into a queue."""


@twin(imports.Import)
class Import(Twin):
    """A named import into a queue."""


@twin(sinks.Stager, waits=("plain", "add", "finish", "discard"))
class Stager(Twin):
    """One attempt to stage rows of a batch, see ``Sink.stage``."""


@twin(producer.Producer, waits=("flush", "close"))
class Producer(Twin):
    """Sends messages of tasks, which share transactions: the twin of ``fdbqueue.Producer``."""

    blocking: producer.Producer[Any]

    async def send(self, message: Any, *, room: Seconds | None = None) -> asyncio.Future[str]:
        """Send one message, once there is room for it; returns a future of its id."""
        future = await run(partial(self.blocking.send, message, room=room))
        return asyncio.wrap_future(future)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await run(self.blocking.close)
