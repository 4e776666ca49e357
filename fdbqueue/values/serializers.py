"""Serializers: how values become payloads, and back.

Without a serializer, bytes are stored as they are, and anything else as JSON. Each message carries
its content type, by which it is read. A queue stores what is known of the serializer that it was
first opened with, so that those who open it without one, such as the shell, write what fits.
"""

from __future__ import annotations

import json
import math
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, cast, runtime_checkable

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
CONTENT_TYPES = f"a str of 1 to {MAX_CONTENT_TYPE} bytes, all printable"
"""What a content type can be, in words."""
JSON = "application/json"
MOST_REASONS = 5
"""How many fields an error names that a model does not take."""
MAX_DEPTH = 100
"""In how many lists and dicts a value may be, so that any reader takes it."""
_GIVEN_BACK = "what JSON gives back in value and type"


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
    """JSON in UTF-8, of values that it gives back as they are, in value and type."""

    content_type = JSON

    def dumps(self, value: Any) -> bytes:
        if type(value) not in _SCALARS:
            _check_json(value, ())
        return _encode(value).encode()

    def loads(self, payload: bytes) -> Any:
        return json.loads(payload)


class TypeSerializer(Generic[T]):
    """Values of a type that pydantic knows, as JSON: a model of it, a dataclass, a TypedDict or a
    standard type. It checks each value that comes in, and each that is read."""

    content_type = JSON

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
        # Strict: "7" for an int would be enqueued as 7, and come back as another type than was
        # given.
        checked = self._adapter.validate_python(value, strict=True)
        plain = self._adapter.dump_python(checked, mode="json", warnings="error")
        payload = _encode(plain).encode()  # Refuses NaN, which pydantic writes as null.
        # Objects are not checked as they come in, and may have changed since they were made.
        self._adapter.validate_json(payload)
        return payload

    def loads(self, payload: bytes) -> T:
        return self._adapter.validate_json(payload)


class AbsentSerializer:
    """Stands in for a serializer that is not here: takes its payloads as bytes, and reads none."""

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def dumps(self, value: bytes) -> bytes:
        return check_payload(value)

    def loads(self, payload: bytes) -> NoReturn:
        raise NotImplementedError


class Declared(NamedTuple):
    """What a queue stores of its serializer: the name of its type or class, and its content
    type."""

    name: str
    content_type: str

    @classmethod
    def of(cls, serializer: Serializer[Any] | None) -> Declared | None:
        """What is stored of a serializer."""
        match serializer:
            case None | AbsentSerializer():
                return None
            case TypeSerializer():
                return cls(serializer.type.__name__, JSON)
            case BytesSerializer():
                return cls(bytes.__name__, BYTES)
        return cls(type(serializer).__name__, serializer.content_type)

    def __str__(self) -> str:
        return f"{self.name} ({self.content_type})"

    @property
    def stand_in(self) -> Serializer[Any]:
        """What writes payloads of the content type for those who do not have the serializer."""
        if self.content_type == BYTES:
            return _BYTES
        return _JSON if self.content_type == JSON else AbsentSerializer(self.content_type)


_BYTES, _JSON = BytesSerializer(), JsonSerializer()
_SCALARS = {str, int, bool, type(None)}
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


def find(serializer: type | Serializer | None) -> Serializer[Any] | None:
    """The serializer of a type, or the caller's own; None for bytes and JSON.

    Raises ``InvalidOptions``, and ``MissingPackage`` without pydantic.
    """
    if serializer is None:
        return None
    if isinstance(serializer, type):
        # A class has the methods of its objects, and passes for one of them.
        if isinstance(serializer, Serializer):
            raise InvalidOptions(
                option="serializer",
                problem=f"it must be an object: {serializer.__name__}(), not {serializer.__name__}",
            )
        return _BYTES if serializer is bytes else TypeSerializer(serializer)
    if not isinstance(serializer, Serializer):
        raise InvalidOptions(
            option="serializer",
            problem="it must be a type, or have content_type, dumps and loads; bytes and JSON need "
            "none",
        )
    if not is_content_type(serializer.content_type):
        problem = f"its content_type must be {CONTENT_TYPES}"
        raise InvalidOptions(option="serializer", problem=problem)
    return serializer


def is_content_type(given: object) -> bool:
    """Whether messages can have a content type."""
    return (
        isinstance(given, str)
        and given.isprintable()  # It can be encoded, then.
        and 0 < len(given.encode()) <= MAX_CONTENT_TYPE
    )


def check_content_type(given: object) -> None:
    """Raise ``InvalidArgument`` unless messages can have a content type."""
    if not is_content_type(given):
        problem = f"must be {CONTENT_TYPES}"
        raise InvalidArgument(argument="content_type", value=given, problem=problem)


def dumps(serializer: Serializer[Any] | None, value: object) -> tuple[bytes, str]:
    """The payload of a value, and its content type; raises ``InvalidPayload``."""
    if serializer is None:
        if type(value) is bytes:
            return check_payload(value), BYTES
        plain = isinstance(value, bytes | bytearray | memoryview)
        serializer = cast(Serializer[Any], _BYTES if plain else _JSON)
    try:
        payload = serializer.dumps(value)
    except InvalidPayload:
        raise
    except Exception as error:
        expected = (
            f"{serializer.type.__name__}, the type of the queue's values"
            if isinstance(serializer, TypeSerializer)
            else _GIVEN_BACK
            if serializer is _JSON
            else f"what {type(serializer).__name__} takes, the queue's serializer"
        )
        kind = f"{type(value).__name__} ({_reason(error)})"
        raise InvalidPayload(expected=expected, kind=kind) from error
    return check_payload(payload), serializer.content_type


def loads(serializer: Serializer[Any] | None, message: Message) -> Any:
    """The value of a message, by the serializer of its content type.

    Raises ``UnknownContentType``, and ``CorruptData`` if the payload is not of that type.
    """
    what = f"the payload of message {message.id}"
    return decoded(serializer, message.content_type, message.payload, message.id, what)


def decoded(
    serializer: Serializer[Any] | None,
    content_type: str,
    payload: bytes,
    message_id: str,
    what: str,
) -> Any:
    """Decode anything that belongs to a message, as ``loads`` does. what: its name in errors."""
    own = None if isinstance(serializer, AbsentSerializer) else serializer
    known = (own or _BYTES, _BYTES, _JSON)
    reader = next((one for one in known if one.content_type == content_type), None)
    if reader is None:
        raise UnknownContentType(message_id=message_id, content_type=content_type)
    try:
        return reader.loads(payload)
    except Exception as error:
        problem = _reason(error)
        if isinstance(reader, TypeSerializer):
            problem = f"it is no {reader.type.__name__}: {problem}"
        raise CorruptData(what=f"{what} as {content_type}", problem=problem) from error


def _reason(error: Exception) -> str:
    """Why a serializer refuses a value, in one line."""
    from sys import modules  # pydantic is imported if it has raised this

    pydantic: Any = modules.get("pydantic_core")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        ".".join(map(str, each["loc"])) + ": " * bool(each["loc"]) + each["msg"]
        for each in found[:MOST_REASONS]
    ]
    return "; ".join(told) + f"; and {len(found) - MOST_REASONS} more" * (len(found) > MOST_REASONS)


def typed(serializer: Serializer[Any] | None, given: bytes) -> Any:
    """What somebody who types ``given`` means: a value if it is JSON, else a text, else bytes.

    For a serializer of another content type, its payload.
    """
    if serializer is not None and serializer.content_type != JSON:
        return given
    try:
        return json_value(given)
    except UnicodeDecodeError:
        return given
    except ValueError:
        return given.decode()


def json_value(payload: bytes) -> Any:
    """The value of JSON, if it is one that may be enqueued; raises ``ValueError``."""
    try:
        value = json.loads(payload.decode())
        # What may be enqueued is decided in one place: JSON has numbers, such as 1e999, that no
        # reader gets back.
        dumps(_JSON, value)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return value


def _check_json(value: object, path: tuple[str | int, ...]) -> None:
    """Raise ``InvalidPayload`` unless JSON gives a value back in value and type."""
    what, why = type(value).__name__, "which JSON does not have"
    match value:
        case str() | int() | None if type(value) in _SCALARS:
            return
        case float() if type(value) is float:
            if math.isfinite(value):
                return
            what = f"the float {value}"
        case list() | dict() if len(path) >= MAX_DEPTH:
            path, why = path[:3], f"nested in more than {MAX_DEPTH} others"
        case list() if type(value) is list:
            for n, each in enumerate(value):
                if type(each) not in _SCALARS:
                    _check_json(each, (*path, n))
            return
        case dict() if type(value) is dict:
            for key, each in value.items():
                if type(key) is not str:
                    break
                if type(each) not in _SCALARS:
                    _check_json(each, (*path, key))
            else:
                return
            why = f"whose key {key!r} is no str"
        case tuple():
            why = "which JSON gives back as list"
        # A class derived from one of these loses itself: what is read would not be what was
        # written.
        case bool() | str() | int() | float() | list() | dict():
            base = next(each for each in (str, int, float, list, dict) if isinstance(value, each))
            why = f"which JSON gives back as {base.__name__}"
    where = " at payload" + "".join(f"[{step!r}]" for step in path) if path else ""
    kind = f"{what}{where}, {why}"
    raise InvalidPayload(expected=_GIVEN_BACK, kind=kind)
