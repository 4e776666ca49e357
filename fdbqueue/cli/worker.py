"""``fdbq worker``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer.core
from typer import Argument, Exit, Option, Typer

from . import terminal
from .queues import consumers

if TYPE_CHECKING:
    from ..worker.health import Address
    from ..worker.processes.place import Place


class _SafeFormatter(logging.Formatter):
    """Writes log records that are safe in a terminal and cannot be forged by a message.

    A record is one line; the lines of its traceback are indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return terminal.visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {terminal.visible(line)}" for line in lines)


class WithRun(typer.core.TyperGroup):
    """Commands of which ``run`` is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else ["run", *args])


app = Typer(
    name="worker",
    cls=WithRun,
    help="Run a worker, or list the consumers of a queue. fdbq worker MODULE:NAME is the same as "
    "fdbq worker run MODULE:NAME.",
    no_args_is_help=True,
)
app.command("list")(consumers.list_)


@app.command()
def run(
    target: Annotated[
        str,
        Argument(metavar="MODULE[:NAME]", help="The worker, or the queue whose jobs it runs."),
    ],
    concurrency: Annotated[
        int | None,
        Option("--concurrency", "-c", metavar="N", help="Messages that a process handles at once."),
    ] = None,
    processes: Annotated[
        int,
        Option(
            "--processes",
            "-p",
            metavar="N",
            min=1,
            max=256,
            help="Processes; one that dies is restarted.",
        ),
    ] = 1,
    reload: Annotated[
        bool,
        Option("--reload", help="Restart when a Python file below this directory changes."),
    ] = False,
    health: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Answer probes there: /livez, /readyz, /metrics; port 0 picks a free one. Further "
            "processes answer at the next ports.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        Option("--verbose", "-v", help="Log everything the worker does, not only failures."),
    ] = False,
) -> None:
    """Run a worker until it is stopped.

    MODULE can be imported from here. Without NAME, it runs the jobs of all queues in the module.

    On SIGTERM or Ctrl-C it finishes the messages it is handling and releases all others; on a
    second signal it stops at once. It starts by printing its queues and store to standard error.

    With --health it answers 200 or 503 to orchestrators: /livez says whether it must be started
    anew, /readyz whether it takes messages. /metrics has what it counts, if it has metrics.

    Under systemd, with Type=notify, it says when it takes messages and when it stops. With
    WatchdogSec=, it gives signs of life while /livez would be 200.

    \b
    Examples:
      fdbq worker run shop.orders:worker
      fdbq worker shop.orders
      fdbq worker shop.orders:worker --verbose
      fdbq worker shop.orders:worker --concurrency 32 --processes 4
      fdbq worker shop.orders:worker --reload
      fdbq worker shop.orders:worker --health 127.0.0.1:8080
    """
    from ..worker.health import Systemd
    from ..worker.processes.supervisor import Supervisor

    addresses = [None] * processes if health is None else _addresses(health, processes)
    work = partial(_work, target, concurrency, verbose, addresses)
    if processes == 1 and not reload:
        work(None)
        return
    watched = Path.cwd() if reload else None
    systemd = Systemd.from_environment()
    code = Supervisor(partial(_process, work), processes, watched, terminal.note, systemd).run()
    if code:
        raise Exit(code)


def _process(work: Callable[[Place], None], place: Place) -> None:
    """Work in a process of several, with the errors and exit codes of a command."""
    from .main import run as command

    sys.exit(command([], lambda _: work(place)))


def _work(
    target: str,
    concurrency: int | None,
    verbose: bool,
    addresses: Sequence[Address | None],
    place: Place | None,
) -> None:
    from ..store import binding  # --store must be known
    from ..worker.processes import runner

    binding.creates = False
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    address = addresses[0 if place is None else place.number]
    runner.run(target, concurrency, terminal.note, address, place)


def _addresses(given: str, count: int) -> list[tuple[str, int]]:
    """The address of each process: the same host, and the next ports."""
    host, _, port = given.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
        raise terminal.CommandError(f"--health {given}: write a host and a port, as 127.0.0.1:8080")
    first = int(port)
    if first and first + count > 65_536:
        raise terminal.CommandError(f"--health {given}: there are no {count} ports from {first} on")
    return [(host, first + n if first else 0) for n in range(count)]
