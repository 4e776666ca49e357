"""Checks of flags, counts, payloads and headers."""

from __future__ import annotations

import math

from ..errors import InvalidArgument, InvalidPayload, PayloadTooLarge
from .model import Headers, HeaderValue
from .options import MAX_PAYLOAD

MAX_HEADER_BYTES = 8_000
"""Of all headers, as they are stored."""
_HEAD_BYTES, _NUMBER_BYTES = 4, 9
MAX_INTEGER = 2**63 - 1


def check_count(argument: str, value: object, most: int) -> int:
    """A number from 1 to ``most``; raises ``InvalidArgument``."""
    if type(value) is not int or not 0 < value <= most:
        raise InvalidArgument(argument=argument, value=value, problem=f"must be 1 to {most:,}")
    return value


def check_flag(argument: str, value: object) -> bool:
    """True or False: any text would be true. Raises ``InvalidArgument``."""
    if type(value) is not bool:
        raise InvalidArgument(argument=argument, value=value, problem="must be True or False")
    return value


def check_place(argument: str, value: object, given: str = "a listing, or a delivery,") -> bytes:
    """A token or a place, as what is ``given`` has it; raises ``InvalidArgument``."""
    if type(value) is not bytes:
        problem = f"must be the bytes that {given} has"
        raise InvalidArgument(argument=argument, value=value, problem=problem)
    return value


def check_payload(payload: object, limit: int = MAX_PAYLOAD) -> bytes:
    """A payload as bytes; raises ``InvalidPayload`` or ``PayloadTooLarge``."""
    if type(payload) is bytes and len(payload) <= limit:
        return payload
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidPayload(expected="bytes", kind=type(payload).__name__)
    data = bytes(payload)
    if len(data) > limit:
        raise PayloadTooLarge(size=len(data), limit=limit)
    return data


def _refused(header: object, problem: str) -> InvalidArgument:
    return InvalidArgument(argument="headers", value=header, problem=problem)


def check_headers(headers: Headers | None) -> dict[str, HeaderValue]:
    """Headers as a plain dict; raises ``InvalidArgument``."""
    if not headers:
        return {}
    if not hasattr(headers, "items"):
        raise _refused(headers, "headers must be a mapping")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str):
            raise _refused(name, "a name must be a str")
        try:
            # Counted a little too high, and so without packing: what passes here fits as it is
            # stored.
            size += len(name.encode()) + _HEAD_BYTES
            size += len(value.encode()) if isinstance(value, str) else _NUMBER_BYTES
        except UnicodeEncodeError as error:
            raise _refused(name, str(error)) from None
        # Most are texts, of which no more is to be checked.
        if value is None or isinstance(value, str):
            continue
        if not isinstance(value, int | float | bool):
            kind = type(value).__name__
            raise _refused(
                name,
                f"a value must be str, int, float, bool or None, not {kind}",
            )
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise _refused(name, "an int must fit in 64 bits")
        if isinstance(value, float) and not math.isfinite(value):
            raise _refused(name, "a float must be finite, as in JSON")
    if size > MAX_HEADER_BYTES:
        raise _refused(
            "*",
            f"all headers have {size:,} bytes; at most {MAX_HEADER_BYTES:,}",
        )
    return dict(headers)
