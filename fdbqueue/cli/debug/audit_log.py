"""``fdbq debug audit``: what operators did."""

from __future__ import annotations

from typing import Any

from .. import context, output, terminal
from ..json_schema import when
from ..output import Listed, View
from ..parameters import option


def audit(
    limit: int = option("N", "Show at most N lines.", 100, "--max", min=1, max=10_000),
    before: str | None = option("STAMP", "Only what is older than the line of this stamp."),
) -> Listed:
    """Show what operators did, by commands and in the web pages, the newest first.

    A command that has changed something has a line; an action of the pages has one when it begins,
    with how many messages were expected, and one when it ends, with how many there were. What
    programs do is not in it. Lines are kept for 400 days.

    Examples:
      fdbq debug audit --max 20
      fdbq debug audit --json | jq '.[] | select(.action == "purge")'
    """
    from fdbqueue.queue.admin.audit_trail import AuditTrail

    try:
        stamp = None if before is None else bytes.fromhex(before)
    except ValueError:
        raise terminal.CommandError(f"--before {before}: a stamp is hexadecimal") from None
    trail = AuditTrail(context.connect(), context.subspace())

    def look() -> View:
        found = trail.newest(limit + 1, stamp)
        values: list[dict[str, Any]] = [
            {
                "stamp": line.stamp.hex(),
                "at": when(line.at_ms),
                **{name: getattr(line, name) for name in ("who", "action", "queue")},
                "what": dict(line.what),
                **{name: getattr(line, name) for name in ("state", "count", "run")},
            }
            for line in found[:limit]
        ]
        rows = [
            (
                *(each["at"], each["who"] or "-"),
                *(each[name] for name in ("action", "queue", "state", "count")),
                " ".join(f"{name}={value}" for name, value in each["what"].items()),
            )
            for each in values
        ]
        more = None
        if len(found) > limit:
            more = f"there are more: continue with --before {values[-1]['stamp']}"
        headers = ["at", "who", "action", "queue", "state", "count", "what"]
        return output.table(headers, rows, values, "the audit log is empty", more)

    return look
