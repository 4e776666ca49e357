"""The handler of a queue with jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidArgument, UnknownJob
from ..queue.jobs import HEADER
from ..queue.queue import Queue
from ..store.binding import fdb
from ..values.model import Delivery
from .handlers import Handler


def handler(queue: Queue[Any]) -> Callable[..., Any]:
    """What calls the job of each message. Raises ``InvalidArgument``.

    The function raises ``UnknownJob`` for a message of another job.
    """
    jobs = {name: Handler.of(job.function, queue) for name, job in queue._jobs.items()}
    if len({each.transactional for each in jobs.values()}) != 1:
        problem = "some of its jobs take a transaction: take two queues" if jobs else "has no job"
        raise InvalidArgument(argument="queue", value=queue, problem=problem)

    def found(delivery: Delivery) -> Handler:
        name = delivery.message.headers.get(HEADER)
        if name not in jobs:
            raise UnknownJob(name=name, queue=queue.name, known=", ".join(sorted(jobs)))
        return jobs[str(name)]

    def call(delivery: Delivery) -> object:
        return found(delivery).call(queue, [delivery])

    def call_in(tr: fdb.Transaction, delivery: Delivery) -> object:
        return found(delivery).call(queue, [delivery], tr)

    function = call_in if any(each.transactional for each in jobs.values()) else call
    function.__qualname__ = f"jobs {', '.join(sorted(jobs))}"
    return function
