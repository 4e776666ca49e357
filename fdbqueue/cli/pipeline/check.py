"""``fdbq pipeline check``: the guarantees verified over histories."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import home, terminal
from ..commands import history
from ..declarations import Argument, Option
from ..parameters import AsJson, complete_queue
from . import session as pipeline_session

if TYPE_CHECKING:
    from fdbqueue.spark import Verdict


def check(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[QUEUE]...", help="Queues.", autocompletion=complete_queue),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        Option(
            "--run", metavar="DIRECTORY", help="A history of tools/chaos instead; may be repeated."
        ),
    ] = None,
    max_attempts: Annotated[
        int | None,
        Option(
            metavar="N", min=1, help="The most attempts that any message of the queues may have."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the guarantees over the delivery history of queues, or over histories of tools/chaos.

    The queues may be in use meanwhile. A queue keeps a history if its option history_seconds says
    for how long. Of every kind of violation the first is printed with the history that shows it;
    the exit code is 1 if there is any. docs/spark.md tells what is checked.

    \b
    Examples:
      fdbq pipeline check orders payments
      fdbq pipeline check orders --max-attempts 5 --json
      fdbq pipeline check --run histories/first --run histories/second
    """
    if bool(names) == bool(runs):
        raise terminal.Refused("name queues, or histories with --run")
    if names:
        db = home.opened()
        queues = [home.queue(name) for name in dict.fromkeys(names)]
        for queue in queues:
            history.check(db, queue)
    spark, session = pipeline_session.start("check")
    with pipeline_session.told("tasks") as tell:
        if names:
            verdict = spark.check(
                db, queues, max_attempts=max_attempts, spark=session, progress=tell
            )
        else:
            verdict = spark.check_runs(runs or [], spark=session, progress=tell)
    if as_json:
        terminal.print_json(verdict.to_json())
    else:
        _print(verdict)
    if not verdict.ok:
        raise terminal.Exit(1)


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
