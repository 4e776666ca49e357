"""``fdbq worker``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer.core
from typer import Exit

from ..values.verdicts import folded
from . import json_schema, terminal
from .commands import Group
from .parameters import argument, flag, option
from .queues import worker_list

if TYPE_CHECKING:
    from ..worker.health import Address
    from ..worker.processes.membership import Membership


LogFormat = Literal["text", "json"]
KEPT = 100
"""How many tracebacks are remembered, so that each is printed once."""
FIELDS = ("queue", "message_id", "key", "attempt", "handler", "seconds")


class _SafeFormatter(logging.Formatter):
    """Writes log records that are safe in a terminal and cannot be forged by a message.

    A record is one line. Below it is a traceback, from the first frame of the handler on, indented,
    where it was not printed before.
    """

    def __init__(self, given: str | None = None) -> None:
        super().__init__(given)
        self._printed: dict[str, None] = {}

    def formatMessage(self, record: logging.LogRecord) -> str:
        return terminal.visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        text = folded(ei[1])
        if text in self._printed:
            return "  with the same traceback as before"
        self._printed[text] = None
        if len(self._printed) > KEPT:
            del self._printed[next(iter(self._printed))]
        return "\n".join(f"  {terminal.visible(line)}" for line in text.split("\n"))


class _JsonFormatter(logging.Formatter):
    """Writes each log record as a line of JSON, with all that is known of its message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        error = record.exc_info and record.exc_info[1]
        return terminal.dumps(
            {
                "at": json_schema.when(int(record.created * 1000)),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
                **fields,
                **({"traceback": folded(error)} if error else {}),
            }
        )


class WithRun(typer.core.TyperGroup):
    """Commands of which ``run`` is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else ["run", *args])


app = Group(
    "worker",
    "Run a worker, or list the consumers of a queue. fdbq worker MODULE:NAME is the same as "
    "fdbq worker run MODULE:NAME.",
    cls=WithRun,
)
app.command("list")(worker_list.list_)


@app.command()
def run(
    target: str = argument("MODULE[:NAME]", "The worker, or the queue whose jobs it runs."),
    concurrency: int | None = option(
        "N", "Messages that a process handles at once.", None, "--concurrency", "-c"
    ),
    processes: int = option(
        "N", "Processes; one that dies is restarted.", 1, "--processes", "-p", min=1, max=256
    ),
    reload: bool = flag("Restart when a Python file below this directory changes.", "--reload"),
    health: str | None = option(
        "HOST:PORT",
        "Answer probes there: /livez, /readyz, /status, /metrics; 0 picks a free port. "
        "Further processes answer at the next ports.",
    ),
    verbose: bool = flag(
        "Log each message that begins or ends, not only failures.", "--verbose", "-v"
    ),
    log_format: LogFormat = option(
        "FORMAT", "text, or json: an object a line.", "text", "--log-format"
    ),
) -> None:
    """Run a worker until it is stopped.

    MODULE is imported from this directory. Without NAME, it runs the jobs of all its queues.

    On SIGTERM or Ctrl-C it finishes the messages it is handling and releases all others; on a
    second signal it stops at once. It starts by printing its queues and store to standard error.

    Each failure is logged with its queue, message, key, attempt and handler, what failed and when
    the message comes again. Below it is the traceback, from the handler on.

    With --health it answers 200 or 503 to orchestrators: /livez says whether it must be started
    anew, /readyz whether it takes messages. /status has what it handles, as JSON, and /metrics what
    it counts; this needs fdbqueue[metrics].

    Under systemd, with Type=notify, it says when it takes messages and when it stops. With
    WatchdogSec=, it gives signs of life while /livez would be 200.

    Examples:
      fdbq worker run shop.orders:worker
      fdbq worker shop.orders
      fdbq worker shop.orders:worker --verbose --log-format json
      fdbq worker shop.orders:worker --concurrency 32 --processes 4
      fdbq worker shop.orders:worker --reload
      fdbq worker shop.orders:worker --health 127.0.0.1:8080
    """
    from ..worker.health import Systemd
    from ..worker.processes.supervisor import Supervisor

    addresses = [None] * processes if health is None else _addresses(health, processes)
    work = partial(_work, target, concurrency, verbose, log_format, addresses)
    if processes == 1 and not reload:
        work(None)
        return
    watched = Path.cwd() if reload else None
    systemd = Systemd.from_environment()
    code = Supervisor(partial(_process, work), processes, watched, terminal.note, systemd).run()
    if code:
        raise Exit(code)


def _process(work: Callable[[Membership], None], place: Membership) -> None:
    """Work in a process of several, with the errors and exit codes of a command."""
    from .main import run as command

    sys.exit(command([], lambda _: work(place)))


def _work(
    target: str,
    concurrency: int | None,
    verbose: bool,
    log_format: str,
    addresses: Sequence[Address | None],
    place: Membership | None,
) -> None:
    from ..store import binding  # --store must be known
    from ..worker.processes import runner

    # A worker that finds no store has the wrong path, and would wait for ever at an empty one.
    binding.creates = False
    handler = logging.StreamHandler()
    text = _SafeFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    address = addresses[0 if place is None else place.number]
    runner.run(target, concurrency, terminal.note, address, place, _metrics)


def _metrics() -> Any:
    """What counts, if its package is installed."""
    from ..errors import MissingPackage

    try:
        from ..metrics import WorkerMetrics
    except MissingPackage:
        return None
    return WorkerMetrics()


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
