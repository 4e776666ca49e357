"""``fdbq debug audit``: what operators did."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from .. import context, listings, terminal
from ..json_schema import when
from ..parameters import ListOutput, grouped


@grouped
def audit(
    limit: Annotated[
        int, Option("--max", metavar="N", min=1, max=10_000, help="Show at most N lines.")
    ] = 100,
    before: Annotated[
        str | None,
        Option(metavar="STAMP", help="Only what is older than the line of this stamp."),
    ] = None,
    *,
    output: ListOutput,
) -> None:
    """Show what operators did, by commands and in the web pages, the newest first.

    A command that has changed something has a line; an action of the pages has one when it begins,
    with how many messages were expected, and one when it ends, with how many there were. What
    programs do is not in it. Lines are kept for 400 days.

    \b
    Examples:
      fdbq debug audit --max 20
      fdbq debug audit --json | jq '.[] | select(.action == "purge")'
    """
    from fdbqueue.queue.queue_base import composed
    from fdbqueue.schema import audit_log
    from fdbqueue.schema.keys import RootKeys

    try:
        stamp = None if before is None else bytes.fromhex(before)
    except ValueError:
        raise terminal.CommandError(f"--before {before}: a stamp is hexadecimal") from None
    db = context.connect()
    keys = RootKeys(context.subspace())

    def look() -> listings.View:
        found = composed(
            db, keys.once, audit_log.read_newest, keys, limit + 1, stamp, wrote=lambda _: False
        )
        shown = found[:limit]
        values: list[dict[str, Any]] = [
            {
                "stamp": line.stamp.hex(),
                "at": when(line.at_ms),
                "who": line.who,
                "action": line.action,
                "queue": line.queue,
                "what": dict(line.what),
                "state": line.state,
                "count": line.count,
                "run": line.run,
            }
            for line in shown
        ]
        more = None
        if len(found) > limit:
            more = f"there are more: continue with --before {shown[-1].stamp.hex()}"
        return listings.table(
            ["at", "who", "action", "queue", "state", "count", "what"],
            [
                (
                    when(line.at_ms),
                    line.who or "-",
                    line.action,
                    line.queue,
                    line.state,
                    line.count,
                    " ".join(f"{name}={value}" for name, value in line.what.items()),
                )
                for line in shown
            ],
            values,
            "the audit log is empty",
            more,
        )

    listings.show(look, output)
