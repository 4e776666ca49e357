"""The pages on a real port, and clients that mean ill."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from fdbqueue import Queue, fdb
from fdbqueue.values.selector import Selector
from fdbqueue.web import User, Users, application, filters, server, server_sent_events
from fdbqueue.web.pages import actions
from fdbqueue.web.server import Sparse, listen
from fdbqueue.web.site import FILTERS
from tests.patience import DEADLINE, eventually
from tests.web.serving import serving

SECRET = "a long enough secret"


@pytest.fixture
def address(db: fdb.Database, space: fdb.Subspace) -> Iterator[str]:
    """Pages with a password."""
    users = Users([(User("vera"), SECRET), (User("otto"), SECRET)])
    with serving(application(db, root=space, users=users)) as found:
        yield found


def connect(address: str, sent: bytes = b"") -> socket.socket:
    host, port = address.split(":")
    found = socket.create_connection((host, int(port)), timeout=DEADLINE)
    found.sendall(sent)
    return found


def ended(client: socket.socket) -> bool:
    """Whether the server has cut a client off; waits for it."""
    with contextlib.suppress(ConnectionError):
        return client.recv(1) == b""
    return True


def status(address: str, path: str = "/") -> int:
    connection = http.client.HTTPConnection(address, timeout=DEADLINE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def stream(address: str, path: str, until: contextlib.ExitStack) -> http.client.HTTPResponse:
    """The answer with a stream of events, which lasts until then."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE)
    until.callback(connection.close)
    connection.request("GET", path)
    return until.enter_context(connection.getresponse())


def test_what_is_sent_leaves_at_once() -> None:
    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as listening:
            async with await asyncio.start_server(connected, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                try:
                    return await found
                finally:
                    writer.close()

    assert asyncio.run(accepted())


def test_half_sent_requests_lock_nobody_out(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    with contextlib.ExitStack() as clients:
        held = [
            clients.enter_context(connect(address, b"GET / HTTP/1.1\r\nHost: 127"))
            for _ in range(200)
        ]
        assert status(address) == 401
        assert all(map(ended, held[:100])), "the oldest make room"
        held[-1].sendall(b".0.0.1\r\n\r\n")
        assert held[-1].recv(12) == b"HTTP/1.1 401", "the newest is as good as any"
    assert len(capfd.readouterr().err.splitlines()) < 20


def test_a_request_has_a_deadline_however_it_is_sent(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(address) as silent, connect(address, whole + b"GET /") as second:
        with connect(address, b"GET / HTTP/1.1\r\n") as slow, contextlib.suppress(OSError):
            while True:
                slow.sendall(b"a: b\r\n")
                slow.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    assert slow.recv(1) == b""
                    break
        assert ended(silent)
        with contextlib.suppress(ConnectionError):
            answer = b""
            while piece := second.recv(4_096):
                answer += piece
            assert answer.count(b"HTTP/1.1 401") == 1


def test_a_form_has_a_deadline(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "FORM_SECONDS", 0.1)
    with serving(application(db, root=space, allow_actions=True)) as address:
        half = b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\naction=purge"
        with connect(address, half) as client:
            assert client.recv(12) == b"HTTP/1.1 408"


def test_half_sent_forms_lock_nobody_out(
    db: fdb.Database,
    space: fdb.Subspace,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    half = b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\naction=purge"
    with serving(application(db, root=space)) as address, contextlib.ExitStack() as clients:
        held = [clients.enter_context(connect(address, half)) for _ in range(40)]
        assert status(address) == 200
        assert all(map(ended, held[:10])), "the oldest make room"
        held[-1].close()
        assert status(address) == 200
    assert "Traceback" not in capfd.readouterr().err


def test_an_answer_before_the_whole_request_leaves_a_deadline(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with connect(
        address, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    ) as client:
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(4_096):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 401")


def test_lines_of_one_kind_fill_no_log() -> None:
    now = 0.0
    log, lines = logging.Logger("pages"), list[str]()
    log.addFilter(Sparse(lambda: now))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)

    for n in range(1_000):
        log.warning("no request: %d", n)
    log.warning("something else")
    assert lines == [*(f"no request: {n}" for n in range(10)), "something else"]
    now = 61.0
    log.warning("no request: %d", 1_000)
    assert lines[-1] == "no request: 1000 (990 more before)"


def test_no_more_pages_than_there_are_places_have_a_stream(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "MAX_PAGES", 5)
    with serving(application(db, root=space)) as address, contextlib.ExitStack() as clients:
        request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        held = [clients.enter_context(connect(address, request)) for _ in range(40)]
        answers = [each.recv(12)[-3:] for each in held]
        assert sorted(answers) == [b"200"] * 5 + [b"503"] * 35
        held[answers.index(b"200")].close()
        eventually(lambda: status(address, "/events") == 200)


def test_who_has_most_pages_gives_one_to_a_newcomer(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "MAX_PAGES", 4)

    def who(request: object) -> User:
        return User(request.query_params["user"])  # type: ignore[attr-defined]

    app = application(db, root=space, authenticate=who)
    with serving(app) as address, contextlib.ExitStack() as until:
        greedy = [stream(address, "/events?user=otto", until) for _ in range(4)]
        assert [each.status for each in greedy] == [200] * 4
        assert status(address, "/events?user=otto") == 503
        others = [stream(address, "/events?user=vera", until) for _ in range(2)]
        assert [each.status for each in others] == [200, 200]
        for each in greedy[2:]:
            assert b"retry" in each.read(), "it has ended"
        assert status(address, "/events?user=vera") == 503


def test_filters_take_no_page_from_others_and_none_runs_whose_client_has_gone(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue(db, b"x", headers={"n": 1})
    begun, go, ran = threading.Semaphore(0), threading.Event(), list[object]()
    matches = Selector.matches

    def slow(self: Selector, *given: Any) -> bool:
        ran.append(self)
        begun.release()
        assert go.wait(DEADLINE)
        return matches(self, *given)

    monkeypatch.setattr(Selector, "matches", slow)
    with serving(application(db, root=space)) as address, contextlib.ExitStack() as clients:
        request = b"GET /queue?queue=orders&selector=n%3D1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        held = [clients.enter_context(connect(address, request)) for _ in range(60)]
        for _ in range(FILTERS):
            assert begun.acquire(timeout=DEADLINE)
        for path in ("/", "/queue?queue=orders", "/static/live.js"):
            assert status(address, path) == 200
        for each in held:
            each.close()
        assert status(address) == 200, "the ends of the connections have come before"
        go.set()
        assert status(address, "/queue?queue=orders&selector=n%3D1") == 200
        assert len(ran) == FILTERS + 1


def test_a_filter_looks_at_the_clock_at_each_message(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = queue.enqueue_many(db, [b"x"] * 50)
    monkeypatch.setattr(filters, "MAX_SECONDS", 0.0)
    text = pages.get("/queue?queue=orders&selector=n%3D1").text
    assert f"after={first}" in text
