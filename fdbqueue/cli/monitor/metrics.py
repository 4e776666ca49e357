"""``fdbq metrics serve``."""

from __future__ import annotations

import math

import fdbqueue

from ...errors import InvalidArgument
from ...store.hosts import LOOPBACK
from .. import context, terminal
from ..commands import Group
from ..parameters import option, queue_option

app = Group("metrics", "Metrics for Prometheus; needs fdbqueue[metrics].")


@app.callback()
def _metrics() -> None:
    """Keep this a group, although it has only one command."""


@app.command()
def serve(
    port: int = option("PORT", "The port; 0 picks a free one.", 9_808, min=0, max=65_535),
    host: str = option("ADDRESS", "The address to listen on.", "127.0.0.1"),
    hostnames: list[str] | None = option(
        "NAME", "A public name under which it is scraped. Repeatable.", None, "--hostname"
    ),
    names: list[str] | None = queue_option("Only this queue. Repeatable."),
    most: int = option(
        "COUNT", "Show the first queues only.", 1_000, "--max-queues", min=1, max=1_000_000
    ),
    keys: int = option(
        "COUNT",
        "Show by name the keys of each queue with the most messages that wait.",
        0,
        min=0,
        max=1_000,
    ),
) -> None:
    """Serve metrics of the queues at /metrics, until Ctrl-C.

    Depths by level and state, the load that is pending, the age of the oldest message, totals, and
    consumers by state. Every scrape reads them from the store, so one such process is enough. It
    reads counters, and of the messages only the first of each level.

    Whoever reaches the address can read them. A request must name this server by an address, a name
    without a dot or of a private domain, or one of --hostname: so no page of the web reads them.

    Example:
      fdbq metrics serve --port 9808 --host 0.0.0.0
    """
    from fdbqueue.metrics import QueueCollector
    from fdbqueue.worker.health.probe_server import Server, url
    from fdbqueue.worker.health.probes import scrapes

    db = context.connect()

    def queues() -> list[fdbqueue.Queue]:
        return [context.queue(name) for name in names or context.queue_names(db)]

    for queue in queues() if names else []:
        queue.options(db)  # raises QueueNotFound
    collector = QueueCollector(db, queues, most=most, keys=keys)
    try:
        server = Server((host, port), hostnames or ())
    except InvalidArgument as error:
        raise terminal.CommandError(str(error), 1) from None
    server.serve({"/metrics": scrapes(collector.exposition)})
    try:
        # As the first process of a container it would not hear SIGTERM otherwise.
        with terminal.termination_raises():
            if host not in LOOPBACK:
                terminal.note("whoever reaches this machine can read them")
            print(f"serving {url(server.address)}/metrics")
            terminal.flush()
            terminal.sleep(math.inf)
    except KeyboardInterrupt:
        server.close()
