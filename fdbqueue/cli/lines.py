"""Messages as JSON lines: what ``fdbq enqueue`` reads and ``receive`` and ``peek`` print.

A line is an object with ``payload`` (a string) or ``payload_base64`` (any bytes), and perhaps
``priority`` and ``headers``. What else ``receive`` and ``peek`` print is accepted and not used, so
that their output can be enqueued again; any other name is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from fdbqueue.codec import check_headers, check_payload
from fdbqueue.errors import InvalidInput
from fdbqueue.model import Delivery, Headers, Message, NewMessage
from fdbqueue.options import QueueOptions

CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 64_000_000
"""The largest payload, every byte of it written as an escape, and room for the headers."""
MAX_BATCH = 1_000
MAX_BATCH_BYTES = 1_000_000
"""Payloads of a batch that has more than one message."""

_USED = {"payload", "payload_base64", "priority", "headers"}
_PRINTED = {"id", "level", "attempts", "enqueued_at", "attempt", "token", "expires_at"}


class BadLine(InvalidInput):
    """Raised when a line is not a message; ``number`` counts from 1."""

    text = "line {number:,}: {problem}"


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of consecutive lines, all of them valid; ``size`` is the bytes read so far."""

    messages: list[NewMessage]
    size: int


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns lines into messages. ``priority`` and ``headers`` are for lines that have none."""

    options: QueueOptions
    priority: int
    headers: Headers

    def batches(self, stream: BinaryIO) -> Iterator[Batch]:
        """Batches that are small enough for a transaction, as soon as their lines are there.

        Raises ``BadLine``; none of the lines of its batch has been yielded then.
        """
        number = size = 0
        for lines in _chunks(stream):
            messages = []
            for line in lines:
                number += 1
                size += len(line) + 1
                if line.strip():
                    messages.append(self._numbered(number, line))
            for batch in _bounded(messages):
                yield Batch(batch, size)

    def _numbered(self, number: int, line: bytes) -> NewMessage:
        try:
            return self.message(line)
        except (InvalidInput, ValueError) as error:
            raise BadLine(number=number, problem=str(error)) from None

    def message(self, line: bytes) -> NewMessage:
        """One message, valid for the queue; raises ``ValueError``."""
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"longer than {MAX_LINE_BYTES:,} bytes")
        value = _object(line)
        payload = _payload(value)
        priority = value.get("priority", self.priority)
        self.options.level(priority)
        headers = value.get("headers", self.headers)
        return NewMessage(
            check_payload(payload, self.options.max_payload), priority, check_headers(headers)
        )


def _bounded(messages: list[NewMessage]) -> Iterator[list[NewMessage]]:
    """The messages in groups that a transaction takes."""
    batch: list[NewMessage] = []
    size = 0
    for message in messages:
        size += len(message.payload)
        if batch and (size > MAX_BATCH_BYTES or len(batch) == MAX_BATCH):
            yield batch
            batch, size = [], len(message.payload)
        batch.append(message)
    if batch:
        yield batch


def _chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines, as many as are there: waits for the first, never for more.

    A line that is too long ends it without being read to its end; its length refuses it.
    """
    read = getattr(stream, "read1", stream.read)
    pieces: list[bytes] = []
    held = 0
    while held <= MAX_LINE_BYTES and (chunk := read(CHUNK_BYTES)):
        pieces.append(chunk)
        held += len(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(pieces).split(b"\n")
            pieces, held = [rest], len(rest)
            yield lines
    if rest := b"".join(pieces):
        yield [rest]


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not a message: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError('not an object like {"payload": "…"}')
    for name in value:
        if name not in _USED and name not in _PRINTED:
            raise ValueError(f"unknown name {name!r}; a message has {', '.join(sorted(_USED))}")
    return value


def _payload(value: dict[str, Any]) -> bytes:
    if ("payload" in value) == ("payload_base64" in value):
        raise ValueError("a message has either payload or payload_base64")
    name = "payload" if "payload" in value else "payload_base64"
    text = value[name]
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string")
    try:
        if name == "payload_base64":
            return base64.b64decode(text, validate=True)
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} has half of a surrogate pair") from None
    except ValueError as error:
        raise ValueError(f"{name} is not base64: {error}") from None


def message_json(message: Message) -> dict[str, Any]:
    """A message as ``peek --json`` prints it."""
    return {
        "id": message.id,
        **_payload_json(message.payload),
        "priority": message.priority,
        "headers": dict(message.headers),
        "level": message.level,
        "attempts": message.attempts,
        "enqueued_at": _time(message.enqueued_at_ms),
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """A delivery as ``receive --json`` prints it."""
    return {
        **message_json(delivery.message),
        "attempt": delivery.attempt,
        "token": delivery.token.hex(),
        "expires_at": _time(delivery.expires_at_ms),
    }


def _payload_json(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
