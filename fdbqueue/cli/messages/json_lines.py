"""Messages as JSON lines, as ``fdbq enqueue`` reads them.

A line is an object with ``payload`` (any JSON, or the text of bytes if ``content_type`` says that
it is none) or ``payload_base64`` (any bytes), and optionally
``priority``, ``headers`` and the other arguments of an enqueue. It can also be an array of such
objects, or part of an array with one object per line. Names that only ``receive`` and
other commands print are ignored, so that you can enqueue their output. Any other name is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import asdict

from fdbqueue.errors import InvalidInput
from fdbqueue.values import serializers
from fdbqueue.values.content import check_payload
from fdbqueue.values.model import NewMessage
from fdbqueue.values.options import QueueOptions
from fdbqueue.values.serializers import Serializer

from ..json_schema import PRINTED

CHUNK_BYTES = 256 * 1024
MAX_LINE_BYTES = 64_000_000
"""Enough for the largest payload with every byte escaped, and its headers."""
MAX_BATCH = 1_000
MAX_BATCH_BYTES = 1_000_000
"""Payload bytes of a batch with more than one message."""

PAYLOADS = ("payload", "payload_base64")
ARGUMENTS = frozenset(
    ("priority", "headers", "delay", "due_at", "ttl", "ttl_ends_at", "max_attempts", "backoff",
     "dedup_id", "unique", "on_conflict", "max_delay", "key", "limits", "content_type")
)  # fmt: skip
_MOMENTS = {"due_at": "at", "ttl_ends_at": "ttl_ends_at"}
"""Names whose values are times, and the arguments they stand for."""
_EITHER: tuple[dict[str, Any], ...] = (
    {"delay": 0.0, "at": None},
    {"ttl": None, "ttl_ends_at": None},
)
"""Arguments of which a message has one: that of a line replaces that of the command."""
_KNOWN = PRINTED | ARGUMENTS | frozenset(PAYLOADS)


class BadLine(InvalidInput):
    """Raised when a line is not a message; ``number`` starts at 1."""

    text = "line {number:,}: {problem}"


class InputPlace(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A position in the input: the number, size and digest of the lines before it."""

    lines: int = 0
    size: int = 0
    sha256: str = ""


@dataclass(slots=True)
class LineBatch:
    """Messages of consecutive lines, the number of each line, and the place after them."""

    until: InputPlace = field(default_factory=InputPlace)
    messages: list[NewMessage] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0

    def full(self, message: NewMessage) -> bool:
        """Whether the batch has messages, and no room for this one."""
        large = self.size + len(message.payload) > MAX_BATCH_BYTES
        return bool(self.messages) and (large or len(self.messages) == MAX_BATCH)


class LineReader:
    """Turns lines into messages.

    lines: in lists of those that have arrived together, as from ``arriving``.
    given: arguments for lines that do not specify them.
    digest: whether places include a digest, as a resumable import needs.
    serializer: that of the queue. typed: whether payloads are texts, as in CSV, which mean what
        they mean as an argument of the command.
    """

    def __init__(
        self,
        options: QueueOptions,
        given: NewMessage,
        lines: Iterator[list[bytes]],
        *,
        digest: bool,
        serializer: Serializer[Any] | None = None,
        typed: bool = False,
    ) -> None:
        self._serializer, self._typed, self._options = serializer, typed, options
        self._given, self._arriving = asdict(given), lines
        self._lines = self._size = 0
        self._digest = hashlib.sha256() if digest else None

    @property
    def place(self) -> InputPlace:
        """The place after the lines that were read."""
        digest = self._digest.hexdigest() if self._digest and self._lines else ""
        return InputPlace(self._lines, self._size, digest)

    def skip(self, since: InputPlace) -> bool:
        """Skip the input before a place; returns whether it is unchanged."""
        while self._size < since.size and (lines := next(self._arriving, None)):
            left = deque(lines)
            while left and self._size < since.size:
                self._pass(left.popleft())
            self._arriving = chain([[*left]], self._arriving)
        return self.place == since

    def batches(self) -> Iterator[LineBatch]:
        """Batches that fit in a transaction, as soon as their lines have arrived.

        Raises ``BadLine`` for a line that is not a message. If the queue rejects a message,
        ``blame`` finds its line.
        """
        for lines in self._arriving:
            batch = LineBatch()
            for line in lines:
                for n, message in enumerate(self._messages(line)):
                    # A resumable batch ends with a whole line.
                    if batch.full(message) and not (n and self._digest):
                        batch.until = self.place
                        yield batch
                        batch = LineBatch()
                    batch.messages.append(message)
                    batch.numbers.append(self._lines + 1)
                    batch.size += len(message.payload)
                self._pass(line)
            if batch.messages:
                batch.until = self.place
                yield batch

    def blame(self, batch: LineBatch) -> None:
        """Raise ``BadLine`` for the first message of a batch that the queue rejects."""
        from fdbqueue.queue.validation import draft

        for number, message in zip(batch.numbers, batch.messages, strict=True):
            try:
                self._options.level(message.priority)
                drafted = draft(message, 0, None)
                check_payload(drafted.envelope.payload, self._options.max_payload)
            except InvalidInput as error:
                raise BadLine(number=number, problem=str(error)) from None

    def _pass(self, line: bytes) -> None:
        self._lines += 1
        self._size += len(line) + 1
        if self._digest:
            self._digest.update(line + b"\n")

    def _messages(self, line: bytes) -> list[NewMessage]:
        try:
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(f"longer than {MAX_LINE_BYTES:,} bytes")
            return [self._message(value) for value in objects(line)]
        except (InvalidInput, ValueError) as error:
            raise BadLine(number=self._lines + 1, problem=str(error)) from None

    def _message(self, value: dict[str, Any]) -> NewMessage:
        for name in value.keys() - _KNOWN:
            names = ", ".join(sorted(ARGUMENTS | {*PAYLOADS}))
            raise ValueError(f"unknown name {name!r}; known names are {names}")
        own = {
            _MOMENTS.get(name, name): _moment(name, value[name])
            if name in _MOMENTS and value[name] is not None
            else value[name]
            for name in ARGUMENTS & value.keys()
        }
        given = dict(self._given)
        for either in _EITHER:
            given |= either if either.keys() & own.keys() else {}
        given |= own
        payload, content_type = self._payload(value, given["content_type"])
        return NewMessage(**{**given, "payload": payload, "content_type": content_type})

    def _payload(self, value: dict[str, Any], content_type: Any) -> tuple[bytes, str | None]:
        """The payload in a line, and its content type."""
        if ("payload" in value) == ("payload_base64" in value):
            raise ValueError("a message needs either payload or payload_base64")
        own = self._serializer
        payload: Any = value.get("payload")
        if "payload_base64" in value:
            payload = _bytes("payload_base64", value["payload_base64"], base64.b64decode)
        elif self._typed:
            payload = _bytes("payload", payload)
            payload = payload if content_type else serializers.typed(own, payload)
        elif content_type == serializers.JSON:
            return serializers.dumps(serializers.JsonSerializer(), payload)
        elif (content_type or (own and own.content_type) or serializers.JSON) != serializers.JSON:
            payload = _bytes("payload", payload)
        return (payload, content_type) if content_type else serializers.dumps(own, payload)


def arriving(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lines, in lists of those that have arrived together; waits for one line, and for no more.

    Stops inside a line that is too long; the caller rejects it.
    """
    read = getattr(stream, "read1", stream.read)
    chunks: list[bytes] = []
    held = 0
    # A file without line ends must not fill the memory.
    while held <= MAX_LINE_BYTES and (chunk := read(CHUNK_BYTES)):
        chunks.append(chunk)
        held += len(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(chunks).split(b"\n")
            chunks, held = [rest], len(rest)
            # As soon as whole lines are there: a producer that writes one a minute must not wait
            # for a full chunk.
            yield lines
    if rest := b"".join(chunks):
        yield [rest]


def objects(line: bytes) -> list[dict[str, Any]]:
    """The objects in a line: one object, an array, or a line of an array with one object per line.

    Raises ``ValueError``.
    """
    text = line.strip()
    if text in (b"", b"[", b"]"):
        return []
    value = json_value(text.removesuffix(b",") if text.endswith(b"},") else text)
    found = value if isinstance(value, list) else [value]
    for each in found:
        if not isinstance(each, dict):
            raise ValueError('not an object like {"payload": "…"}')
    return found


def json_value(line: bytes) -> Any:
    """Parse a line of JSON; raises ``ValueError``."""
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not a message: nested too deeply") from None


def _moment(name: str, text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise ValueError(f"{name} must be a time with its zone, such as 2030-01-31T08:00+01:00")
    return moment


def _bytes(name: str, text: object, decode: Callable[..., bytes] | None = None) -> bytes:
    """The bytes of a text, or those that it stands for; raises ``ValueError``."""
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string")
    try:
        return text.encode() if decode is None else decode(text, validate=True)
    except UnicodeEncodeError:
        raise ValueError(f"{name} contains half of a surrogate pair") from None
    except ValueError as error:
        raise ValueError(f"{name} is not base64: {error}") from None
