"""Validation of new messages, before anything is read or written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, get_args

from ..errors import InvalidArgument
from ..messages.enqueue.admission import Draft
from ..schema.envelope import INLINE_LIMIT, Envelope
from ..values import backoff
from ..values.backoff import MAX_DELAY_SECONDS, check_delay
from ..values.content import check_headers, check_payload
from ..values.durations import Seconds
from ..values.model import BYTES, NewMessage, OnConflict
from ..values.options import MAX_LEVELS, MAX_PAYLOAD, check_attempts, check_name
from ..values.serializers import Serializer, check_content_type, dumps
from ..values.text import meant

MAX_LIMITS = 5
"""The most limits of a message: each is read and written at once when it comes in."""
MIN_TTL_SECONDS = 0.001
_ON_CONFLICT = get_args(OnConflict)
MIN_KEPT_SECONDS = 1.0
"""The shortest time to keep a result: a clock may be off by more than less."""


def check_terms(given: Mapping[str, object], known: type) -> None:
    """Check that arguments that a call hands on have names that a typed dict has; raises
    ``TypeError`` with the one that was meant."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"there is no argument {name!r}{meant(name, known.__annotations__)}")


def drafts(
    messages: Iterable[NewMessage | Any], now_ms: int, serializer: Serializer[Any] | None
) -> list[Draft]:
    """Valid messages. Raises what ``draft`` raises."""
    return [
        # Nothing of a plain payload needs checking: most batches consist of these.
        Draft(Envelope(each, now_ms), bare=True)
        if serializer is None and type(each) is bytes and len(each) <= MAX_PAYLOAD
        else draft(each, now_ms, serializer)
        for each in messages
    ]


def check_several(messages: object) -> None:
    """Raise ``InvalidArgument`` for one message where several are to be given."""
    if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(
        messages, Iterable
    ):
        kind = type(messages).__name__
        problem = f"give a list of messages, not {kind}; enqueue takes one"
        raise InvalidArgument(argument="messages", value=messages, problem=problem)


def check_inline(argument: str, envelope: Envelope) -> None:
    """Check that an envelope stands in one row with its payload, for what is kept so. Raises
    ``InvalidArgument``."""
    size = len(envelope.pack())
    if size > INLINE_LIMIT:
        problem = (
            f"it has {size:,} bytes with its payload of {len(envelope.payload):,}, headers and "
            f"names: at most {INLINE_LIMIT:,} are kept for each time that it comes"
        )
        raise InvalidArgument(argument=argument, value=len(envelope.payload), problem=problem)


def draft(
    message: NewMessage | Any,
    now_ms: int,
    serializer: Serializer[Any] | None,
    group: str | None = None,
) -> Draft:
    """A valid message, of a group if it is of one. Raises what ``Queue.enqueue`` raises for its
    arguments."""
    if not isinstance(message, NewMessage):
        message = NewMessage(message)
    # True equals 1, and is stored as something else.
    if type(message.priority) is not int or not 0 <= message.priority < MAX_LEVELS:
        problem = "must be an integer from 0 to levels - 1, or to 9 if there are fewer"
        raise InvalidArgument(argument="priority", value=message.priority, problem=problem)
    due_ms = expires_at_ms = None
    if message.at is not None or type(message.delay) is not float or message.delay:
        due_ms = due(message.delay, message.at, now_ms)
    if message.ttl is not None or message.ttl_ends_at is not None:
        expires_at_ms = _expiry(message, now_ms)
    if message.ttl is not None and due_ms is not None and (expires_at_ms or 0) <= due_ms:
        raise InvalidArgument(
            argument="ttl", value=message.ttl, problem="must end after the message is due"
        )
    content_type = message.content_type
    if content_type is None:
        payload, content_type = dumps(serializer, message.payload)
    else:
        check_content_type(content_type)
        payload = check_payload(message.payload)
    if message.max_attempts is not None:
        check_attempts("max_attempts", message.max_attempts)
    limit_ms = None
    if message.on_conflict != "keep" or message.max_delay is not None:
        limit_ms = _conflict(message)
    unique, key, dedup_id = message.unique, message.key, message.dedup_id
    kept, limits = message.keep_result, message.limits
    envelope = Envelope(
        payload=payload,
        priority=message.priority,
        enqueued_at_ms=now_ms,
        headers=check_headers(message.headers) if message.headers else {},
        content_type=BYTES if content_type == BYTES else content_type,  # to be left out
        expires_at_ms=expires_at_ms,
        max_attempts=message.max_attempts,
        backoff=None if message.backoff is None else backoff.store(message.backoff),
        unique=None if unique is None else check_name(unique, "unique"),
        key=None if key is None else check_name(key, "key"),
        keep_result_ms=None if kept is None else _kept(kept),
        limits=None if limits is None else _limits(limits),
        group=group,
    )
    name = None if dedup_id is None else check_name(dedup_id, "dedup_id")
    bare = due_ms is None and name is None and envelope.plain
    return Draft(envelope, due_ms, name, message.on_conflict, limit_ms, bare)


def _conflict(message: NewMessage[Any]) -> int | None:
    """``max_delay`` in milliseconds, once ``on_conflict`` is known to be valid."""
    given = message.on_conflict
    if given not in _ON_CONFLICT:
        problem = 'must be "keep", "replace" or "debounce"'
        raise InvalidArgument(argument="on_conflict", value=given, problem=problem)
    if given != "keep" and message.unique is None:
        problem = "needs a unique key"
        raise InvalidArgument(argument="on_conflict", value=given, problem=problem)
    if message.max_delay is None:
        return None
    if given != "debounce":
        problem = 'is for on_conflict="debounce"'
        raise InvalidArgument(argument="max_delay", value=message.max_delay, problem=problem)
    return int(check_delay("max_delay", message.max_delay) * 1000)


def _kept(seconds: Seconds) -> int:
    """``keep_result`` in milliseconds."""
    return int(check_delay("keep_result", seconds, MIN_KEPT_SECONDS) * 1000)


def _limits(given: Mapping[str, str]) -> dict[str, str]:
    """``limits``, once they are known to be valid."""
    if not isinstance(given, Mapping) or not given:
        problem = 'name limits by their dimensions: {"api": "stripe"}'
    elif len(given) > MAX_LIMITS:
        problem = f"a message has at most {MAX_LIMITS} limits, not {len(given)}"
    else:
        return {check_name(each, "limits"): check_name(given[each], "limits") for each in given}
    raise InvalidArgument(argument="limits", value=given, problem=problem)


def due(delay: Seconds, at: datetime | None, now_ms: int) -> int | None:
    """When a message is due, in milliseconds; None where that is now."""
    if at is None:
        seconds = check_delay("delay", delay)
        return now_ms + int(seconds * 1000) if seconds else None
    if delay:
        raise InvalidArgument(argument="at", value=at, problem="give at or delay, not both")
    due_ms = _moment("at", at)
    if due_ms > now_ms + MAX_DELAY_SECONDS * 1000:
        raise InvalidArgument(argument="at", value=at, problem="must be at most ten years from now")
    return due_ms if due_ms > now_ms else None


def _moment(argument: str, given: object) -> int:
    """A moment in milliseconds since the epoch."""
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidArgument(
            argument=argument, value=given, problem="must be a datetime with a time zone"
        )
    return max(0, round(given.timestamp() * 1000))


def _expiry(message: NewMessage, now_ms: int) -> int | None:
    if message.ttl_ends_at is not None:
        if message.ttl is not None:
            raise InvalidArgument(
                argument="ttl_ends_at",
                value=message.ttl_ends_at,
                problem="give ttl or ttl_ends_at, not both",
            )
        return _moment("ttl_ends_at", message.ttl_ends_at)
    if message.ttl is None:
        return None
    return now_ms + int(check_delay("ttl", message.ttl, MIN_TTL_SECONDS) * 1000)
