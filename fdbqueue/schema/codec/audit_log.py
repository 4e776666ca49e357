"""A line of the audit log: who did what to which queue, and to how many messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import CorruptData
from ...values.records import record


@record
class AuditLine:
    """What an operator did, or began.

    stamp: orders lines by commit. at_ms: the wall clock. who: the operator; empty for somebody at
    the machine itself. action: such as "redrive". queue: its name. what: the terms of the action,
    such as a filter. run: the same in all lines of one action. state: "begun", "done" or "failed".
    count: of how many messages or consumers; when it begins, how many are expected.
    """

    stamp: bytes
    at_ms: int
    who: str
    action: str
    queue: str
    what: Mapping[str, str]
    run: str
    state: str
    count: int


def pack_audit(line: AuditLine) -> bytes:
    names = AuditLine.__match_args__[1:]
    return json.dumps({name: getattr(line, name) for name in names}, sort_keys=True).encode()


def unpack_audit(value: bytes, stamp: bytes = b"") -> AuditLine:
    """A line as it was stored."""
    try:
        stored: dict[str, Any] = json.loads(value)
        return AuditLine(stamp, *(stored[name] for name in AuditLine.__match_args__[1:]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(what="the audit log", problem=repr(error)) from None
