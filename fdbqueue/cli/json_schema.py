"""The JSON of messages, leases, consumers and others that --json prints."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fdbqueue.values.model import (
    BYTES,
    Death,
    Delivery,
    Event,
    Failure,
    LeasedMessage,
    Message,
    MessageState,
    PlanConsumer,
)
from fdbqueue.values.serializers import JSON, json_value
from fdbqueue.values.states import State

if TYPE_CHECKING:
    from fdbqueue.consumers.registry import Consumer
    from fdbqueue.schema.consumers import Definition

PRINTED = frozenset(
    ("id", "level", "attempts", "enqueued_at", "attempt", "token", "expires_at", "consumer",
     "state", "waits_for", "leased_at", "group", "cancelled", "last_error", "deaths", "death",
     "failures")
)  # fmt: skip
"""Fields of a printed message that an enqueue ignores."""


def message_json(message: Message) -> dict[str, Any]:
    """A message, as ``message find --json`` prints it, without fields that it does not have.

    Fields have the names that an enqueue takes.
    """
    ends = message.expires_at_ms
    optional = {
        "ttl_ends_at": None if ends is None else when(ends),
        "max_attempts": message.max_attempts,
        "backoff": message.backoff,
        "unique": message.unique,
        "key": message.key,
        "limits": None if message.limits is None else dict(message.limits),
        "last_error": message.last_error or None,
        "deaths": message.deaths or None,
        "death": None if message.death is None else _death(message.death),
    }
    return {
        "id": message.id,
        **payload(message.payload, message.content_type),
        "priority": message.priority,
        "headers": dict(message.headers),
        "level": message.level,
        "attempts": message.attempts,
        "enqueued_at": when(message.enqueued_at_ms),
        **{name: value for name, value in optional.items() if value is not None},
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """A delivery, as ``receive --json`` prints it.

    It has no unique key: the leased message holds that key, so a copy with it would be rejected.
    """
    return {
        **message_json(replace(delivery.message, unique=None)),
        "attempt": delivery.attempt,
        "token": delivery.token.hex(),
        "expires_at": when(delivery.expires_at_ms),
    }


def gate_text(gate: str | tuple[str, str]) -> str:
    """A key or a limit, as the options of a command name it."""
    return f"key {gate}" if isinstance(gate, str) else f"limit {'='.join(gate)}"


def state_json(found: MessageState) -> dict[str, Any]:
    """A message and its state, as ``message find`` and ``message show`` print them."""
    expires, message = found.lease_expires_at_ms, found.message
    if found.state is State.DEAD:
        message = replace(message, expires_at_ms=None)  # it no longer has a time to live
    return {
        **message_json(message),
        "state": found.state.value,
        **({} if found.due_at_ms is None else {"due_at": when(found.due_at_ms)}),
        **({} if found.waits_for is None else {"waits_for": gate_text(found.waits_for)}),
        **({} if expires is None else {"expires_at": when(expires)}),
        **({"consumer": found.consumer} if found.state is State.LEASED else {}),
        **({} if found.leased_at_ms is None else {"leased_at": when(found.leased_at_ms)}),
        **({} if found.group is None else {"group": found.group}),
        **({"cancelled": True} if found.cancelled else {}),
        **({"death": _death(found.death)} if found.death else {}),
        **_failures(found.failures),
    }


def _failures(found: Sequence[Failure]) -> dict[str, Any]:
    names = ("started_at_ms", "ended_at_ms", "consumer", "error", "traceback")
    return {"failures": [fields(each, *names) for each in found]} if found else {}


def lease_json(lease: LeasedMessage) -> dict[str, Any]:
    """A lease, as ``message find --state leased --json`` prints it."""
    delivery = lease.delivery
    return {
        "token": delivery.token.hex(),
        "id": delivery.id,
        "level": delivery.message.level,
        "attempt": delivery.attempt,
        "consumer": lease.consumer,
        "leased_at": None if lease.planned else when(lease.since_ms),
        "expires_at": None if lease.planned else when(delivery.expires_at_ms),
        "expired": lease.expired,
        "planned": lease.planned,
        **({"cancelled": True} if delivery.cancelled else {}),
    }


def plans_json(consumer: PlanConsumer) -> dict[str, Any]:
    """The plans of a stream, as ``stream list --json`` prints them."""
    return {
        "acknowledged": consumer.acknowledged,
        "plans": [
            {
                **fields(plan, "batch", "state", "messages", "left"),
                "bytes": plan.size,
                **fields(plan, "planned_at_ms"),
            }
            for plan in consumer.plans
        ],
        "begins": consumer.begins,
    }


def consumer_json(consumer: Consumer) -> dict[str, Any]:
    """A consumer, as ``worker list --json`` prints it."""
    return {
        **fields(consumer, "id", "name", "priority"),
        "state": consumer.says,
        "subscription": consumer.subscription or None,
        **fields(consumer, "holder", "host", "process", "started_at_ms", "seen_at_ms", "guard"),
    }


def subscription_json(definition: Definition) -> dict[str, Any]:
    """A subscription, as ``subscription list --json`` prints it."""
    return {
        "subscription": definition.name,
        "mode": definition.mode.value,
        "selector": None if definition.selector is None else definition.selector.text,
        "exclusive": definition.exclusive,
        "auto_close": definition.auto_close,
    }


def event_json(event: Event) -> dict[str, Any]:
    """An event of the history, as ``queue history --json`` prints it."""
    return fields(event, "stamp", "at_ms", "transition", "id", "level", "attempt", "consumer")


def when(wall_ms: int) -> str:
    """Milliseconds of the wall clock as ISO 8601 in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _death(death: Death) -> dict[str, Any]:
    return fields(death, "reason", "died_at_ms", "attempts", "queue", "id")


def fields(value: object, *names: str) -> dict[str, Any]:
    """Some fields of a value, as JSON; those in milliseconds are times."""
    return {name.removesuffix("_ms"): _field(name, getattr(value, name)) for name in names}


def known(value: object, *names: str) -> dict[str, Any]:
    """Some fields of a value, as JSON, without those that are None."""
    return fields(value, *(name for name in names if getattr(value, name) is not None))


def _field(name: str, value: Any) -> Any:
    if name.endswith("_ms"):
        return when(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value.hex() if isinstance(value, bytes) else value


def payload(payload: bytes, content_type: str) -> dict[str, Any]:
    """A payload: JSON as its value, without a content type; anything else as text with its content
    type, or in base64 where it is none."""
    try:
        if content_type == JSON:
            return {"payload": json_value(payload)}
        return {"payload": payload.decode(), "content_type": content_type}
    except ValueError:
        typed = {} if content_type == BYTES else {"content_type": content_type}
        return {"payload_base64": base64.b64encode(payload).decode(), **typed}
