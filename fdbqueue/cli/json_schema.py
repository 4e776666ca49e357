"""The JSON of messages, leases, consumers and others that --json prints."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from fdbqueue.values.limits import gate_text
from fdbqueue.values.model import (
    BYTES,
    Delivery,
    Event,
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
    return {
        "id": message.id,
        **payload(message.payload, message.content_type),
        **fields(message, "priority", "headers", "level", "attempts", "enqueued_at_ms"),
        **({} if ends is None else {"ttl_ends_at": when(ends)}),
        **known(message, "max_attempts", "backoff", "unique", "key", "limits", "death"),
        **{name: value for name in ("last_error", "deaths") if (value := getattr(message, name))},
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """A delivery, as ``receive --json`` prints it.

    It has no unique key: the leased message holds that key, so a copy with it would be rejected.
    """
    message = replace(delivery.message, unique=None)
    return {**message_json(message), **fields(delivery, "attempt", "token", "expires_at_ms")}


def state_json(found: MessageState) -> dict[str, Any]:
    """A message and its state, as ``message find`` and ``message show`` print them."""
    expires, message = found.lease_expires_at_ms, found.message
    if found.state is State.DEAD:
        message = replace(message, expires_at_ms=None)  # it no longer has a time to live
    return {
        **message_json(message),
        **fields(found, "state"),
        **known(found, "due_at_ms"),
        **({} if found.waits_for is None else {"waits_for": gate_text(found.waits_for)}),
        **({} if expires is None else {"expires_at": when(expires)}),
        **({"consumer": found.consumer} if found.state is State.LEASED else {}),
        **known(found, "leased_at_ms", "group"),
        **{name: _value(value) for name in LATE if (value := getattr(found, name))},
    }


LATE = ("cancelled", "death", "failures")
"""What of a message's state is left out where it is false or empty."""


def lease_json(lease: LeasedMessage) -> dict[str, Any]:
    """A lease, as ``message find --state leased --json`` prints it."""
    delivery = lease.delivery
    return {
        **fields(delivery, "token", "id"),
        "level": delivery.message.level,
        "attempt": delivery.attempt,
        "consumer": lease.consumer,
        "leased_at": None if lease.planned else when(lease.since_ms),
        "expires_at": None if lease.planned else when(delivery.expires_at_ms),
        **fields(lease, "expired", "planned"),
        **({"cancelled": True} if delivery.cancelled else {}),
    }


def plans_json(consumer: PlanConsumer) -> dict[str, Any]:
    """The plans of a stream, as ``stream list --json`` prints them."""
    found = fields(consumer, "acknowledged", "plans", "begins")
    for plan in found["plans"]:
        plan["bytes"] = plan.pop("size")
    return found


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
        **fields(definition, "exclusive", "auto_close"),
    }


def event_json(event: Event) -> dict[str, Any]:
    """An event of the history, as ``queue history --json`` prints it."""
    return fields(event, "stamp", "at_ms", "transition", "id", "level", "attempt", "consumer")


def when(wall_ms: int) -> str:
    """Milliseconds of the wall clock as ISO 8601 in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def fields(value: object, *names: str) -> dict[str, Any]:
    """Some fields of a value, as JSON; those in milliseconds are times."""
    found = ((name, getattr(value, name)) for name in names)
    return {
        name.removesuffix("_ms"): when(each) if name.endswith("_ms") else _value(each)
        for name, each in found
    }


def known(value: object, *names: str) -> dict[str, Any]:
    """Some fields of a value, as JSON, without those that are None."""
    return fields(value, *(name for name in names if getattr(value, name) is not None))


def _value(value: Any) -> Any:
    if isinstance(value, Struct):
        return fields(value, *value.__struct_fields__)
    if isinstance(value, tuple | list):
        return [*map(_value, value)]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Enum):
        return value.value
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
