"""``fdbq metrics serve``."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Annotated, Any

from typer import Option, Typer

import fdbqueue

from .. import context, terminal
from ..parameters import queue_option

app = Typer(
    name="metrics", help="Metrics for Prometheus; needs fdbqueue[metrics].", no_args_is_help=True
)


@app.callback()
def _metrics() -> None:
    """Keep this a group, although it has only one command."""


@app.command()
def serve(
    port: Annotated[
        int, Option(metavar="PORT", min=0, max=65_535, help="The port; 0 picks a free one.")
    ] = 9_808,
    host: Annotated[str, Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    names: Annotated[list[str] | None, queue_option("Only this queue. Repeatable.")] = None,
    most: Annotated[
        int,
        Option(
            "--max-queues",
            metavar="COUNT",
            min=1,
            max=1_000_000,
            help="Show the first queues only.",
        ),
    ] = 1_000,
    keys: Annotated[
        int,
        Option(
            metavar="COUNT",
            min=0,
            max=1_000,
            help="Show by name the keys of each queue with the most messages that wait.",
        ),
    ] = 0,
) -> None:
    """Serve metrics of the queues at /metrics, until Ctrl-C.

    Depths by level and state, the load that is pending, the age of the oldest message, totals, and
    consumers by state. Every scrape reads them from the store, so one such process is enough. It
    reads counters, and of the messages only the first of each level.

    \b
    Example:
      fdbq metrics serve --port 9808 --host 0.0.0.0
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from fdbqueue.metrics import QueueCollector

    db = context.connect()

    def queues() -> list[fdbqueue.Queue]:
        return [context.queue(name) for name in names or context.queue_names(db)]

    for queue in queues() if names else []:
        queue.options(db)  # raises QueueNotFound
    registry = CollectorRegistry()
    registry.register(QueueCollector(db, queues, most=most, keys=keys))
    # A failed scrape is answered with 500; wsgiref would also print a traceback.
    handlers: Any = import_module("wsgiref.handlers")
    handlers.BaseHandler.log_exception = lambda _, error: terminal.print_error(
        f"a scrape failed: {error[1]}"
    )
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise terminal.CommandError(f"{host}:{port}: {error.strerror or error}", 1) from None
    try:
        # As the first process of a container it would not hear SIGTERM otherwise.
        with terminal.termination_raises():
            print(f"serving http://{host}:{server.server_port}/metrics")
            terminal.flush()
            terminal.sleep(math.inf)
    except KeyboardInterrupt:
        server.shutdown()
