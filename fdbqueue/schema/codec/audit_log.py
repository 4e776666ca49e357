"""A line of the audit log: who did what to which queue, and to how many messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from . import Stored


class AuditLine(Stored, frozen=True):
    """What an operator did, or began.

    at_ms: the wall clock. who: the operator; empty for somebody at the machine itself. action: such
    as "redrive". queue: its name. what: the terms of the action, such as a filter. run: the same in
    all lines of one action. state: "begun", "done" or "failed". count: of how many messages or
    consumers; when it begins, how many are expected. stamp: orders lines by commit; from its key.
    """

    kind: ClassVar[str] = "the audit log"

    at_ms: int
    who: str
    action: str
    queue: str
    what: Mapping[str, str]
    run: str
    state: str
    count: int
    stamp: bytes = b""
