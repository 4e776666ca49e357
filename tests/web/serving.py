"""The pages on a real port, in a thread, for tests that need more than one request at a time."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from fdbqueue.web.server import configuration, listen
from tests.patience import DEADLINE


@contextmanager
def serving(app: ASGIApp, root_path: str = "") -> Iterator[str]:
    """The address of the application."""
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(configuration(app, root_path))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE)


@contextmanager
def events(address: str, query: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
    """The events that a page receives, with their data."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE)
    connection.request("GET", f"/events{query}")
    response = connection.getresponse()

    def received() -> Iterator[tuple[str, Any]]:
        name, until = "", time.monotonic() + DEADLINE
        while line := response.readline().decode().rstrip("\n"):
            # Signs of life keep the connection from its timeout.
            assert time.monotonic() < until, "what was expected did not come"
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))
                response.readline()
            else:
                response.readline()

    try:
        assert response.status == 200, response.read()
        yield received()
    finally:
        connection.close()
