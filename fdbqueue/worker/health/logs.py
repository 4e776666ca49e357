"""What a worker says of the messages that it handles, each in one line."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from ...messages.settle import Refuse, Verdict
from ...queue.enqueue import JOB_HEADER
from ...queue.queue import Queue
from ...values import backoff
from ...values.model import Delivery
from ...values.text import duration
from ...values.verdicts import Retry
from ..handlers import Handler, handler_name
from ..policy import Policy

log = logging.getLogger("fdbqueue.worker")


def about(queue: Queue, handler: Handler, delivery: Delivery) -> dict[str, Any]:
    """A delivery, as fields of a log record."""
    message = delivery.message
    return {
        "queue": queue.name,
        "message_id": delivery.id,
        "key": message.key,
        "attempt": delivery.attempt,
        "handler": str(message.headers.get(JOB_HEADER, "")) or handler_name(handler.function),
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
        _tell(logging.ERROR, f"{text}{reason}; {what}", extra, _traced(error))
    elif most and delivery.attempt >= most:
        what = "that was the last attempt"
        _tell(logging.ERROR, f"{text}{reason}; {what}", extra, _traced(error))
    else:
        what = _again(policy, delivery, verdict.delay)
        _tell(logging.WARNING, f"{text}{reason}; {what}", extra, _traced(error))


def begun(queue: Queue, handler: Handler, delivery: Delivery) -> None:
    """Say that a message is handled."""
    extra = about(queue, handler, delivery)
    _tell(logging.INFO, f"{_named(extra)}, attempt {delivery.attempt}, begins", extra)


def done(queue: Queue, handler: Handler, delivery: Delivery, seconds: float) -> None:
    """Say that a message was handled."""
    extra = about(queue, handler, delivery) | {"seconds": seconds}
    _tell(logging.INFO, f"{_named(extra)} is done in {duration(seconds * 1000)}", extra)


def _tell(level: int, line: str, extra: dict[str, Any], error: BaseException | None = None) -> None:
    # What handlers of logs raise, at a broken error, say, is no reason not to settle the message.
    with suppress(Exception):
        log.log(level, "%s", line, extra=extra, exc_info=error)


def _named(extra: dict[str, Any]) -> str:
    key = "" if extra["key"] is None else f" (key {extra['key']})"
    return f"{extra['queue']} {extra['message_id']}{key}: {extra['handler']}"


def _traced(error: BaseException) -> BaseException | None:
    # Asked for by the handler: its traceback would show no fault.
    return None if isinstance(error, Retry) else error


def _again(policy: Policy, delivery: Delivery, delay: float | None) -> str:
    """When a message comes again: about, where a backoff draws that."""
    if delay is not None:
        return f"again in {duration(delay * 1000)}" if delay else "again at once"
    waits = delivery.message.backoff or policy.usual_backoff
    mean = backoff.delay_seconds(
        None if waits is None else dict(waits), delivery.attempt, lambda low, high: (low + high) / 2
    )
    return f"again in about {duration(mean * 1000)}" if mean else "again at once"
