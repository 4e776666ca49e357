"""``tools/bench schemes``: ways to dequeue, compared by number of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from typer import Argument, Option

from . import measure
from .declare import Row, Seconds, benchmark, counts, known
from .measure import Plan, WarmUp
from .ways import SCHEMES

EXPECTED_RATE = 2_500


@benchmark("schemes")
def schemes(
    names: Annotated[
        list[str] | None, Argument(metavar="SCHEME…", help="The schemes; by default all.")
    ] = None,
    consumers: Annotated[
        str, Option(metavar="N,…", help="Numbers of consumer processes.")
    ] = "1,2,4,8,16,32",
    producers: Annotated[
        int, Option(metavar="N", min=0, help="Processes that enqueue at the same time.")
    ] = 0,
    batch: Annotated[int, Option(metavar="N", min=1, help="Messages in one call.")] = 1,
    seconds: Seconds = 4.0,
    warm_up: WarmUp = 1.0,
) -> Iterator[Row]:
    """Compare ways to dequeue, by number of consumers.

    first, auto and staged are the ways to receive. "plain recipe"
    and "published staged" are published recipes without leases: they lose what a crash interrupts.
    Those that begin with "subscribed" have consumers of one subscription, which wants all messages.

    \b
    Examples:
      tools/bench schemes auto first --consumers 1,8 --seconds 2
      tools/bench schemes --json
    """
    wanted = known("scheme", names or (), SCHEMES)
    backlog = int((seconds + warm_up) * EXPECTED_RATE * min(batch, 10))
    for count in counts(consumers):
        for name in wanted:
            one = measure.run(Plan(name, count, producers, seconds, warm_up, backlog, batch))
            more = {
                "p50 ms": one.p50_ms,
                "p99 ms": one.p99_ms,
                "attempts": one.attempts_per_success,
                "commits": one.commits_per_message,
                "round trips": one.round_trips_per_message,
                "CPU s/1000": one.cpu_us / 1e3,
                "most:least": one.most_to_least,
            }
            yield Row(f"{name}, {count}", one.rate, more=more)
