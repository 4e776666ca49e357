"""The HTTP server that answers probes: small answers, each made when it is asked for."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple, TypeAlias

from ...errors import InvalidArgument
from ...store import world
from ...store.hosts import host_name, is_inner

log = logging.getLogger("fdbqueue.worker")

Address: TypeAlias = tuple[str, int]

READ_SECONDS = 5.0
"""How long a client may take for its request, and for taking the answer."""
POLL_SECONDS = 0.2
"""How long the end of the server takes at most."""
MAX_CLIENTS = 100
"""How many requests are answered at once. For one more, the client that has sent none for the
longest time is cut off; if all have sent theirs, the new one is."""
METHODS = ("GET", "HEAD")


class Answer(NamedTuple):
    """What is answered to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Routes: TypeAlias = Mapping[str, Callable[[], Answer]]


def text(status: HTTPStatus, line: str) -> Answer:
    """An answer of one line."""
    return Answer(status, f"{line}\n".encode(errors="replace"))


def check_address(argument: str, given: object) -> Address:
    """A host and a port to listen at; raises ``InvalidArgument``."""
    match given:
        case (str(host), int(port)) if host and type(port) is int and 0 <= port <= 65_535:
            return host, port
    problem = 'must be a host and a port from 0 to 65,535, as ("127.0.0.1", 8080)'
    raise InvalidArgument(argument=argument, value=given, problem=problem)


def url(address: Address) -> str:
    """An address as a client writes it."""
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """Answers in threads of its own, from ``serve`` to ``close``.

    address: the host, and the port; 0 picks a free one. It listens once it is made. Raises
    ``InvalidArgument`` if it cannot, as where the port is taken. names: by which clients call it,
    beside those of ``is_inner``.
    """

    def __init__(self, address: Address, names: Collection[str] = ()) -> None:
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            self._listener = _Listener(found[0][0], found[0][4], names)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidArgument(
                argument="address",
                value=address,
                problem=f"cannot listen there: {why}; choose another port, or 0 for a free one",
            ) from error
        self.address: Address = (address[0], self._listener.server_address[1])
        """Where it listens."""
        self._thread: world.Thread | None = None

    def serve(self, routes: Routes) -> None:
        """Answer from now on; what has come before waits until then.

        routes: what is answered, by its path.
        """
        self._listener.routes = routes
        serve = self._listener.serve_forever
        self._thread = world.Thread(
            target=serve, args=[POLL_SECONDS], name="fdbqueue-health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and give the port back."""
        if self._thread is not None:
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()


class _Listener(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MAX_CLIENTS

    def __init__(self, family: socket.AddressFamily, address: Any, names: Collection[str]) -> None:
        self.address_family = family
        self.names = {name.lower() for name in names}
        self.routes: Routes = {}
        self._clients: set[Any] = set()
        self._reading: dict[Any, float] = {}
        """Until when each client must have sent its request, by ``world.monotonic``."""
        super().__init__(address, _Request)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if len(self._clients) >= MAX_CLIENTS:
            # The one that has sent nothing for longest: slow clients must not keep probes out.
            self._cut(next(iter(self._reading.copy()), None))
        return len(self._clients) < MAX_CLIENTS

    def process_request(self, request: Any, client_address: Any) -> None:
        self._clients.add(request)
        self._reading[request] = world.monotonic() + READ_SECONDS
        super().process_request(request, client_address)

    def has_read(self, request: Any) -> None:
        """A client has sent its request."""
        self._reading.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.has_read(request)
        self._clients.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off clients that send their request too slowly, however they do it."""
        now = world.monotonic()
        for request, until in self._reading.copy().items():
            if now > until:
                self._cut(request)

    def _cut(self, request: Any) -> None:
        if self._reading.pop(request, None) is None:
            return  # None, or it has just sent its request
        self._clients.discard(request)
        try:
            # Not closed: its thread still reads from it, and another client might get the same
            # descriptor.
            request.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("a client is gone already")

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client got no answer", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    server: _Listener
    timeout = READ_SECONDS

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self.server.has_read(self.connection)
        name = host_name(self.headers.get("Host", ""))
        # A page in a browser could have its own name resolve to this address, and read the answers
        # as its own.
        if not is_inner(name) and name not in self.server.names:
            self._send(text(HTTPStatus.MISDIRECTED_REQUEST, "not served under this name"))
            return False
        if self.command in METHODS:
            return True
        self._send(text(HTTPStatus.METHOD_NOT_ALLOWED, f"only {' and '.join(METHODS)}"))
        return False

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        route = self.server.routes.get(path)
        if route is None:
            known = ", ".join(self.server.routes)
            self._send(text(HTTPStatus.NOT_FOUND, f"there is nothing but {known}"))
            return
        try:
            answer = route()
        except Exception as error:
            log.warning("%s cannot be answered: %s", path, error)
            answer = text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        self._send(answer)

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        status = HTTPStatus(code)
        self._send(text(status, message or status.phrase))

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", ", ".join(METHODS))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        return "fdbqueue"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
