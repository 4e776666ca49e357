"""``fdbq stream check``: verifies the guarantees in delivery histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from .. import context, terminal
from ..parameters import AsJson, complete_queue
from ..queues import queue_history
from . import spark_session

if TYPE_CHECKING:
    from fdbqueue.spark import Verdict


def check(
    names: Annotated[
        list[str],
        Argument(metavar="QUEUE…", help="The queues.", autocompletion=complete_queue),
    ],
    max_attempts: Annotated[
        int | None, Option(metavar="N", min=1, help="The limit of attempts of the queues.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the guarantees in the history of queues.

    The queues may be in use. A queue keeps a history for as long as its option history_seconds
    says. For each kind of violation, fdbq prints the first one with the history that shows it. The
    exit code is 1 if there is any violation. docs/spark/jobs.md lists what is checked.

    \b
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
    if as_json:
        terminal.print_json(verdict.to_json())
    else:
        _print(verdict)
    if not verdict.ok:
        raise Exit(1)


def _print(verdict: Verdict) -> None:
    numbers = (f"{number:,} {name}" for name, number in verdict.checked.items())
    print(f"checked {' and '.join(numbers)}")
    for each in verdict.unchecked:
        print(f"not checked: {terminal.visible(each)}")
    several = len(verdict.sources) > 1
    shown: set[str] = set()
    for one in verdict.violations:
        if one.kind in shown:
            continue
        shown.add(one.kind)
        where = f" (in {terminal.visible(one.source)})" if several else ""
        print(f"\nVIOLATION {one.kind}: {terminal.visible(one.detail)}{where}")
        for line in one.shown_by:
            print(f"    {terminal.visible(line)}")
    print()
    for kind, count in verdict.kinds().items():
        print(f"{terminal.count(count, 'violation')}: {kind}")
    if verdict.ok:
        print("0 violations")
