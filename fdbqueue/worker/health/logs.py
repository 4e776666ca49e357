"""What a worker says of the messages that it handles, each in one line."""

from __future__ import annotations

import logging
from typing import Any

from ...messages.settle import Refuse, Verdict
from ...queue.jobs import HEADER
from ...queue.queue import Queue
from ...values import backoff
from ...values.model import Delivery
from ...values.text import duration
from ...values.verdicts import Retry
from ..handlers import Handler, named
from ..prefetch import Policy

log = logging.getLogger("fdbqueue.worker")


def about(queue: Queue, handler: Handler, delivery: Delivery) -> dict[str, Any]:
    """A delivery, as fields of a log record."""
    message = delivery.message
    return {
        "queue": queue.name,
        "message_id": delivery.id,
        "key": message.key,
        "attempt": delivery.attempt,
        "handler": str(message.headers.get(HEADER, "")) or named(handler.function),
    }


def failed(
    queue: Queue,
    policy: Policy,
    delivery: Delivery,
    verdict: Verdict,
    reason: str,
    error: BaseException,
) -> None:
    """Say that an attempt has failed, and what follows."""
    extra = about(queue, policy.handler, delivery)
    most = policy.max_attempts or delivery.message.max_attempts or policy.usual_attempts
    text = f"{_named(extra)}, attempt {delivery.attempt}{f' of {most:,}' if most else ''}, failed: "
    if isinstance(verdict, Refuse):
        what = "it is dropped" if verdict.drop else "it is dead"
        log.error("%s%s; %s", text, reason, what, extra=extra, exc_info=_traced(error))
    elif most and delivery.attempt >= most:
        what = "that was the last attempt"
        log.error("%s%s; %s", text, reason, what, extra=extra, exc_info=_traced(error))
    else:
        what = _again(policy, delivery, verdict.delay)
        log.warning("%s%s; %s", text, reason, what, extra=extra, exc_info=_traced(error))


def begun(queue: Queue, handler: Handler, delivery: Delivery) -> None:
    """Say that a message is handled."""
    extra = about(queue, handler, delivery)
    log.info("%s, attempt %d, begins", _named(extra), delivery.attempt, extra=extra)


def done(queue: Queue, handler: Handler, delivery: Delivery, seconds: float) -> None:
    """Say that a message was handled."""
    extra = about(queue, handler, delivery) | {"seconds": seconds}
    log.info("%s is done in %s", _named(extra), duration(seconds * 1000), extra=extra)


def _named(extra: dict[str, Any]) -> str:
    key = "" if extra["key"] is None else f" (key {extra['key']})"
    return f"{extra['queue']} {extra['message_id']}{key}: {extra['handler']}"


def _traced(error: BaseException) -> BaseException | None:
    return None if isinstance(error, Retry) else error


def _again(policy: Policy, delivery: Delivery, delay: float | None) -> str:
    """When a message comes again: about, where a backoff draws that."""
    if delay is not None:
        return f"again in {duration(delay * 1000)}" if delay else "again at once"
    waits = delivery.message.backoff or policy.usual_backoff
    mean = backoff.seconds(
        None if waits is None else dict(waits), delivery.attempt, lambda low, high: (low + high) / 2
    )
    return f"again in about {duration(mean * 1000)}" if mean else "again at once"
