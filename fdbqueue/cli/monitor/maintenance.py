"""``fdbq sweep`` and ``fdbq metrics serve``."""

from __future__ import annotations

import math
from dataclasses import asdict
from importlib import import_module
from typing import Annotated, Any

import fdbqueue

from ...errors import QueueNotFound
from .. import home, terminal
from ..declarations import Argument, Group, Option
from ..parameters import AsJson, complete_queue


def sweep(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="QUEUE…",
            help="Names of queues; all where none is given.",
            autocompletion=complete_queue,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do at once what happens to queues by itself, as consumers come by.

    Leases that have lapsed return, delays that are over end, messages whose time to live is over
    go, rows that a write staged a week ago and never published are removed, and queues that delete
    themselves when they are unused are deleted.

    \b
    Examples:
      fdbq sweep orders
      fdbq sweep
    """
    db = home.opened()
    for name in names or home.names(db):
        try:
            swept = home.queue(name).sweep(db)
        except QueueNotFound:
            if names:
                raise
            continue  # deleted since the names were read
        if as_json:
            terminal.print_json({"queue": name, **asdict(swept)})
        else:
            staged = f", {swept.staged:,} staged rows removed" if swept.staged else ""
            gone = "; the queue was unused, and is deleted" if swept.deleted else ""
            print(f"{terminal.visible(name)}: {terminal.count(swept.promoted, 'message')} became "
                  f"ready, {swept.expired:,} expired{staged}{gone}")  # fmt: skip


metrics = Group(
    name="metrics", help="Metrics for Prometheus; needs fdbqueue[metrics].", no_args_is_help=True
)


@metrics.callback()
def _metrics() -> None:
    """A group, although it has one command."""


@metrics.command()
def serve(
    port: Annotated[
        int, Option(metavar="PORT", min=0, max=65_535, help="The port; 0: any free one.")
    ] = 9_808,
    host: Annotated[str, Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    names: Annotated[
        list[str] | None,
        Option(
            "--queue",
            metavar="QUEUE",
            help="Only this queue; several times.",
            autocompletion=complete_queue,
        ),
    ] = None,
) -> None:
    """Serve how the queues stand at /metrics, until Ctrl-C.

    Depths by level and state, the age of the oldest message, totals, and consumers by state, read
    from the store at every scrape: so one such process is enough.

    \b
    Example:
      fdbq metrics serve --port 9808 --host 0.0.0.0
    """
    from prometheus_client import CollectorRegistry, start_http_server

    from fdbqueue.metrics import QueueCollector

    db = home.opened()

    def queues() -> list[fdbqueue.Queue]:
        return [home.queue(name) for name in names or home.names(db)]

    for queue in queues() if names else []:
        queue.options(db)
    registry = CollectorRegistry()
    registry.register(QueueCollector(db, queues))
    # A scrape that fails is answered with 500; wsgiref would print a traceback, too.
    handlers: Any = import_module("wsgiref.handlers")
    handlers.BaseHandler.log_exception = lambda _, error: terminal.complain(
        f"a scrape failed: {error[1]}"
    )
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise terminal.Refused(f"{host}:{port}: {error.strerror or error}", 1) from None
    try:
        print(f"serving http://{host}:{server.server_port}/metrics")
        terminal.flush()
        terminal.pause(math.inf)
    except KeyboardInterrupt:
        server.shutdown()
