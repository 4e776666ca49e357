"""OpenTelemetry: the producer's trace continues in the handler. Needs ``fdbqueue[otel]``.

The context travels in headers, by the propagators of the process: the W3C's ``traceparent`` and,
if set, ``tracestate`` and ``baggage``. They count towards the message's limit of 8,000 bytes of
headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackage
from ..values.model import Headers, HeaderValue, Message

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    context = propagate = trace = None  # type: ignore[assignment]


def inject(headers: Headers | None = None) -> dict[str, HeaderValue]:
    """Headers, and in them the current trace: ``enqueue(tr, payload, headers=inject())``.

    Raises ``MissingPackage``.
    """
    if propagate is None:
        raise MissingPackage(purpose="tracing", package="opentelemetry-api", extra="otel")
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {**(headers or {}), **carrier}


def handling(queue: str, messages: Sequence[Message]) -> AbstractContextManager[Any]:
    """The context in which messages are handled; an empty one without OpenTelemetry, and where
    nobody collects spans and no message has headers to pass on."""
    if trace is None or not messages:
        return nullcontext()
    collected = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    # Without a provider a span costs more than a short handler, and shows nothing.
    if collected or any(message.headers for message in messages):
        return _handling(queue, messages)
    return nullcontext()


@contextmanager
def _handling(queue: str, messages: Sequence[Message]) -> Iterator[Any]:
    """A span below the producer's; a batch has its own, linked to the producers'."""
    origins = [propagate.extract(_text(message.headers)) for message in messages]
    spans = [trace.get_current_span(origin).get_span_context() for origin in origins]
    alone = len(messages) == 1
    attributes: dict[str, str | int] = {
        "messaging.system": "fdbqueue",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.batch.message_count": len(messages),
    }
    if alone:
        attributes["messaging.message.id"] = messages[0].id
    token = context.attach(origins[0]) if alone else None
    try:
        with trace.get_tracer("fdbqueue").start_as_current_span(
            f"process {queue}",
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[] if alone else [trace.Link(span) for span in spans if span.is_valid],
        ) as span:
            yield span
    finally:
        if token is not None:
            context.detach(token)


def _text(headers: Headers) -> dict[str, str]:
    return {name: value for name, value in headers.items() if isinstance(value, str)}
