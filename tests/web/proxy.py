"""A small reverse proxy, as servers in front of the pages are set up."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.patience import DEADLINE

Setting = Callable[[Mapping[str, str]], Mapping[str, str]]
"""The headers that a proxy sets, by those of a request."""


@contextmanager
def proxying(address: str, folder: str, setting: Setting) -> Iterator[str]:
    """The address of a proxy that serves another one in a folder."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.removeprefix(folder)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            headers |= {name.lower(): value for name, value in setting(headers).items()}
            behind = http.client.HTTPConnection(address, timeout=DEADLINE)
            try:
                behind.request(self.command, path, body or None, headers)
                answer = behind.getresponse()
                found = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(found)
            finally:
                behind.close()

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
