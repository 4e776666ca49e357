"""``fdbq queue verify``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import fdbqueue

from .. import context, listings, terminal
from ..declarations import Option
from ..parameters import AsJson, QueueNames


def verify(
    names: QueueNames,
    repair: Annotated[
        bool, Option("--repair", help="Repair what can be repaired without guessing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify the stored data of queues while they are in use.

    It checks counters, leases and their expiries, chunks of payloads, and more: see docs/verify.md.
    It reads everything once and disturbs nobody. The exit code is 1 if anything is wrong or could
    not be checked.

    \b
    Examples:
      fdbq queue verify orders
      fdbq queue verify orders mail --repair
    """
    db = context.connect()
    results: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        found = fdbqueue.verify(db, context.queue(name), repair=repair)
        results.append(
            {
                "queue": name,
                "ok": found.ok,
                "messages": found.messages,
                "staged": found.staged,
                "deviations": [asdict(each) for each in found.deviations],
                "unchecked": [*found.unchecked],
            }
        )
        if not as_json:
            _print(name, found, several=len(names) > 1)
    if as_json:
        listings.print_results(results)
    if not all(each["ok"] for each in results):
        raise terminal.Exit(1)


def _print(name: str, found: fdbqueue.values.model.Verification, *, several: bool) -> None:
    if found.deviations:
        terminal.print_table(
            ["kind", "subject", "", "detail"],
            [
                (each.kind, each.subject, "repaired" if each.repaired else "", each.detail)
                for each in found.deviations
            ],
        )
    for each in found.unchecked:
        print(f"not checked, because it is too large to read at one version: {each}")
    if found.staged:
        print(f"{terminal.count(found.staged, 'row')} staged and not enqueued: "
              f"fdbq sink list {terminal.visible(name)}")  # fmt: skip
    prefix = f"queue {terminal.visible(name)}: " if several else ""
    print(f"{prefix}{terminal.count(found.messages, 'message')} checked: "
          f"{'no problems' if found.ok else 'problems found'}")  # fmt: skip
