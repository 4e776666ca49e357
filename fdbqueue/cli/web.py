"""``fdbq web``: serve the web pages."""

from __future__ import annotations

import contextlib
import math
import re
import time
from pathlib import Path
from types import FrameType

from ..errors import MissingPackage
from ..store.hosts import LOOPBACK
from . import context, terminal
from .parameters import flag, option


def web(
    port: int = option("PORT", "The port; 0 picks a free one.", 9_810, min=0, max=65_535),
    host: str = option(
        "ADDRESS", "The address to listen on; other machines need --users.", "127.0.0.1"
    ),
    hostname: list[str] | None = option(
        "NAME", "Another name that browsers use for this server, as behind a proxy. Repeatable."
    ),
    root_path: str = option(
        "PATH", "The folder, such as /queues, that a proxy serves the pages in and removes.", ""
    ),
    users: Path | None = option(
        "FILE", "Who may see the pages, each a line: NAME viewer SECRET, or NAME operator SECRET."
    ),
    allow_actions: bool = flag("Let operators change queues, not only look.", "--allow-actions"),
) -> None:
    """Serve web pages about the queues, until Ctrl-C; needs fdbqueue[web].

    Without --users, only this machine can reach the pages, and everybody on it. With it, a browser
    asks for a name and its secret as password; a program sends the secret as a bearer token. The
    file must not be readable for others. For TLS, put a proxy in front: docs/web.md says which
    headers it sets.

    Under systemd, with Type=notify, it says when it serves and when it stops. With WatchdogSec=, it
    gives signs of life while its event loop comes round.

    Examples:
      fdbq web
      fdbq web --allow-actions --users users.txt
      fdbq web --host 0.0.0.0 --hostname queues.example.org --users users.txt
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingPackage(purpose="fdbq web", package="uvicorn", extra="web") from error
    from fdbqueue.web import application, read_users
    from fdbqueue.web.server import bound_log, configuration, listen
    from fdbqueue.worker.health.systemd import READY, STOPPING, WATCHDOG, Systemd

    known = None if users is None else read_users(users)
    if known is None and host not in LOOPBACK:
        raise terminal.CommandError(
            f"--host {host}: other machines could reach the pages; say with --users who may"
        )
    root_path = root_path.rstrip("/")
    if root_path and not re.fullmatch(r"(/[\w.~-]+)+", root_path, re.ASCII):
        raise terminal.CommandError(f"--root-path {root_path}: write a path such as /queues")
    app = application(
        context.connect(),
        root=context.subspace(),
        hosts=(*LOOPBACK, host, *(hostname or [])),
        users=known,
        allow_actions=allow_actions,
    )
    systemd = Systemd.from_environment()

    class Server(uvicorn.Server):
        told_at = -math.inf
        """When systemd was last told, by ``time.monotonic``: first that this serves, and then again
        and again that it lives."""

        async def on_tick(self, counter: int) -> bool:
            now = time.monotonic()
            # Twice in the time that systemd waits, as it asks of a watchdog.
            if systemd is not None and now - self.told_at >= (systemd.watchdog or math.inf) / 2:
                notice = READY if self.told_at == -math.inf else WATCHDOG
                systemd.tell(notice, status=f"serves {place}")
                self.told_at = now
            return await super().on_tick(counter)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if systemd is not None:
                systemd.tell(STOPPING, status="stopping")
            # uvicorn waits for open responses, and a stream of events has no end of its own.
            app.state.end_streams()
            super().handle_exit(sig, frame)

    address = f"[{host}]" if ":" in host else host
    try:
        # Before uvicorn runs, so that a port in use is told in one line, and the address is known.
        listening = listen(host, port)
    except OSError as error:
        raise terminal.CommandError(f"{host}:{port}: {error.strerror or error}", 1) from None
    bound_log()
    with listening:
        place = f"http://{address}:{listening.getsockname()[1]}/"
        print(f"serving {place}")
        terminal.flush()
        with contextlib.suppress(KeyboardInterrupt):
            Server(configuration(app, root_path)).run(sockets=[listening])
