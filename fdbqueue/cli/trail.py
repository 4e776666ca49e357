"""What commands change goes into the audit log: what, by whom and when."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from . import context, terminal

CHANGES: Mapping[str, frozenset[str]] = {
    "queue": frozenset({"create", "set", "pause", "resume", "delete"}),
    "message": frozenset({"cancel", "edit", "retry", "move", "copy", "purge", "release"}),
    "schedule": frozenset({"set", "pause", "resume", "run", "delete"}),
    "group": frozenset({"forget"}),
    "limit": frozenset({"set", "pause", "resume", "delete"}),
    "subscription": frozenset({"create", "seek", "delete"}),
    "stream": frozenset({"finish", "forget"}),
}
"""The commands that change something, by their groups."""
TEXT = 200
"""The most characters of a term."""
QUIET = ("yes", "as_json", "dry_run", "watch")


def noted(group: str, command: Any) -> None:
    """Let a command write a line as it has ended, if it changes something."""
    if command.name not in CHANGES.get(group, ()):
        return
    action = command.name if group in ("queue", "message") else f"{command.name}-{group}"
    run: Callable[..., Any] = command.callback

    @wraps(run)
    def callback(*args: Any, **given: Any) -> Any:
        context.changed = 0
        try:
            result = run(*args, **given)
        except BaseException as error:
            # Also what has changed only some of the messages, and was refused or interrupted then.
            if context.changed and not given.get("dry_run"):
                refused = isinstance(error, terminal.CommandError)
                _note(action, given, "done" if refused else "failed")
            raise
        if not given.get("dry_run"):
            _note(action, given)
        return result

    command.callback = callback


def who() -> str:
    """The user of this process, and the machine."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a process of a container may have no name
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def _note(action: str, given: Mapping[str, Any], state: str = "done") -> None:
    from fdbqueue.queue.admin.audit_trail import AuditTrail
    from fdbqueue.schema.records import AuditLine
    from fdbqueue.store.binding import FAILURES
    from fdbqueue.store.clocks import Clock

    from ..errors import QueueError

    queue = "queue" if "limit" in action else "name"
    names = given.get("names") or [given.get(queue) or ""]
    terms = {
        name: ", ".join(map(str, value))[:TEXT] if isinstance(value, list) else str(value)[:TEXT]
        for name, value in given.items()
        if value not in (None, False, [], ()) and name not in (queue, "names", *QUIET)
    }
    try:
        trail = AuditTrail(context.connect(), context.subspace())
        for name in names:
            about = Clock().wall_ms(), who(), action, str(name), terms
            trail.write(AuditLine(*about, "", state, context.changed))
    # The change is made: a missing line must not make the command fail, and be repeated.
    except (*FAILURES, QueueError) as error:
        terminal.note(f"this is not in the audit log: {error}")
