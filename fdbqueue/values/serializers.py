"""Serializers: how values become payloads, and back.

A serializer belongs to a handle, not to the queue. Each message carries the content type of the
serializer that wrote it, so that a reader can find one that reads it.
"""

from __future__ import annotations

import json
from typing import Any, Generic, Protocol, runtime_checkable

from ..errors import (
    CorruptData,
    InvalidArgument,
    InvalidOptions,
    InvalidPayload,
    MissingPackage,
    UnknownContentType,
)
from .content import check_payload
from .model import BYTES, Message, T

MAX_CONTENT_TYPE = 200


@runtime_checkable
class Serializer(Protocol[T]):
    """Turns values of a type into bytes and back. A handle can be pickled if its serializer can.

    A queue opened with a ``Serializer[Order]`` is a ``Queue[Order]``.
    """

    content_type: str
    """A MIME type, kept with every message."""

    def dumps(self, value: T) -> bytes:
        """The payload of a value; an error becomes ``InvalidPayload``."""
        ...

    def loads(self, payload: bytes) -> T:
        """The value of a payload; an error becomes ``CorruptData``."""
        ...


class BytesSerializer:
    """Payloads as they are."""

    content_type = BYTES

    def dumps(self, value: bytes) -> bytes:
        return check_payload(value)

    def loads(self, payload: bytes) -> bytes:
        return payload


class JsonSerializer:
    """JSON in UTF-8, without NaN and infinities, which other readers refuse."""

    content_type = "application/json"

    def dumps(self, value: Any) -> bytes:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()

    def loads(self, payload: bytes) -> Any:
        return json.loads(payload)


class TypeSerializer(Generic[T]):
    """Values of a type that pydantic knows, as JSON: a model of it, a dataclass, a TypedDict or a
    standard type. It checks each value that comes in, and each that is read."""

    content_type = JsonSerializer.content_type

    def __init__(self, type_: type[T]) -> None:
        try:
            from pydantic import TypeAdapter
        except ImportError as error:
            purpose = f"serializer={type_.__name__}"
            raise MissingPackage(purpose=purpose, package="pydantic", extra="pydantic") from error
        self.type = type_
        try:
            self._adapter = TypeAdapter(type_)
        except Exception as error:
            raise InvalidOptions(
                option="serializer", problem=f"pydantic cannot read {type_.__name__}: {error}"
            ) from error

    def __reduce__(self) -> tuple[type, tuple[type[T]]]:
        return TypeSerializer, (self.type,)

    def dumps(self, value: T) -> bytes:
        checked = self._adapter.validate_python(value, strict=True)
        plain = self._adapter.dump_python(checked, mode="json", warnings="error")
        payload = BUILT_IN["json"].dumps(plain)  # Refuses NaN, which pydantic writes as null.
        # Objects are not checked as they come in, and may have changed since they were made.
        self._adapter.validate_json(payload)
        return payload

    def loads(self, payload: bytes) -> T:
        return self._adapter.validate_json(payload)


BUILT_IN: dict[str, Serializer] = {"bytes": BytesSerializer(), "json": JsonSerializer()}


def find(serializer: str | type | Serializer) -> Serializer:
    """A built-in serializer by its name, that of a type, or the caller's own.

    Raises ``InvalidOptions``, and ``MissingPackage`` without pydantic.
    """
    if isinstance(serializer, type):
        if isinstance(serializer, Serializer):
            raise InvalidOptions(
                option="serializer",
                problem=f"it must be an object: {serializer.__name__}(), not {serializer.__name__}",
            )
        return BUILT_IN["bytes"] if serializer is bytes else TypeSerializer(serializer)
    if isinstance(serializer, str):
        if serializer not in BUILT_IN:
            raise InvalidOptions(
                option="serializer",
                problem=f"{serializer!r} is unknown: use {' or '.join(BUILT_IN)}, a type, or an"
                " object with content_type, dumps and loads",
            )
        return BUILT_IN[serializer]
    if not isinstance(serializer, Serializer):
        raise InvalidOptions(
            option="serializer",
            problem="it must be a type, or have content_type, dumps and loads",
        )
    content_type = serializer.content_type
    if not isinstance(content_type, str) or not 0 < len(content_type.encode()) <= MAX_CONTENT_TYPE:
        raise InvalidOptions(
            option="serializer",
            problem=f"its content_type must be a str of 1 to {MAX_CONTENT_TYPE} bytes",
        )
    return serializer


def check_content_type(given: object) -> str:
    """A content type; raises ``InvalidArgument``."""
    if (
        not isinstance(given, str)
        or not 0 < len(given.encode(errors="replace")) <= MAX_CONTENT_TYPE
    ):
        raise InvalidArgument(
            argument="content_type",
            value=given,
            problem=f"must be a str of 1 to {MAX_CONTENT_TYPE} bytes",
        )
    return given


def dumps(serializer: Serializer, value: object) -> bytes:
    """The payload of a value; raises ``InvalidPayload``."""
    try:
        payload = serializer.dumps(value)
    except InvalidPayload:
        raise
    except Exception as error:
        raise InvalidPayload(
            expected=f"something that {serializer.content_type} can hold",
            kind=f"{type(value).__name__} ({error})",
        ) from error
    return check_payload(payload)


def loads(serializer: Serializer, message: Message) -> Any:
    """The value of a message, by the serializer of its content type.

    Raises ``UnknownContentType``, and ``CorruptData`` if the payload is not of that type.
    """
    what = f"the payload of message {message.id}"
    return decoded(serializer, message.content_type, message.payload, message.id, what)


def decoded(
    serializer: Serializer, content_type: str, payload: bytes, message_id: str, what: str
) -> Any:
    """As ``loads``, for anything that belongs to a message. what: its name in errors."""
    known = (serializer, *BUILT_IN.values())
    reader = next((one for one in known if one.content_type == content_type), None)
    if reader is None:
        raise UnknownContentType(message_id=message_id, content_type=content_type)
    try:
        return reader.loads(payload)
    except Exception as error:
        raise CorruptData(what=f"{what} as {content_type}", problem=str(error)) from error
