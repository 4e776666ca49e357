"""``fdbq stream check``: verifies the guarantees in delivery histories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from typer import Exit

from .. import context, terminal
from ..output import Done, Result
from ..parameters import QueueNames, option
from ..queues import queue_history
from . import spark_session

if TYPE_CHECKING:
    from fdbqueue.spark import Verdict


def check(
    names: QueueNames,
    max_attempts: int | None = option("N", "The limit of attempts of the queues.", min=1),
) -> Done:
    """Verify the guarantees in the history of queues.

    The queues may be in use. A queue keeps a history for as long as its option history_seconds
    says. For each kind of violation, fdbq prints the first one with the history that shows it. The
    exit code is 1 if there is any violation. docs/spark/jobs.md lists what is checked.

    Examples:
      fdbq stream check orders payments
      fdbq stream check orders --max-attempts 5 --json
    """
    db = context.connect()
    queues = [context.queue(name) for name in dict.fromkeys(names)]
    for queue in queues:
        queue_history.check_kept(db, queue)
    with spark_session.job("check", "steps") as (spark, run):
        verdict = spark.check(db, queues, max_attempts=max_attempts, **run)
    return Result(verdict.to_json(), [*_lines(verdict)], failed=None if verdict.ok else Exit(1))


def _lines(verdict: Verdict) -> Iterator[str]:
    numbers = (f"{number:,} {name}" for name, number in verdict.checked.items())
    yield f"checked {' and '.join(numbers)}"
    yield from (f"not checked: {each}" for each in verdict.unchecked)
    several = len(verdict.sources) > 1
    shown: set[str] = set()
    for one in verdict.violations:
        if one.kind in shown:
            continue
        shown.add(one.kind)
        where = f" (in {one.source})" if several else ""
        yield from ("", f"VIOLATION {one.kind}: {one.detail}{where}")
        yield from (f"    {line}" for line in one.shown_by)
    yield ""
    for kind, count in verdict.kinds().items():
        yield f"{terminal.count(count, 'violation')}: {kind}"
    if verdict.ok:
        yield "0 violations"
