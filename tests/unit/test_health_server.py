"""The server that answers probes: what it answers, and whom it does not wait for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from fdbqueue.errors import InvalidArgument
from fdbqueue.worker.health import Server, probe_server, url
from fdbqueue.worker.health.probe_server import Answer, text
from tests.patience import DEADLINE, eventually


def fail() -> Answer:
    raise ValueError("no \x1b[31mcolours")


ROUTES = {
    "/livez": lambda: text(HTTPStatus.OK, "live"),
    "/readyz": lambda: text(HTTPStatus.SERVICE_UNAVAILABLE, "not ready"),
    "/fails": fail,
}


@pytest.fixture
def serving() -> Iterator[Server]:
    serving = Server(("127.0.0.1", 0))
    serving.serve(ROUTES)
    yield serving
    serving.close()


def ask(serving: Server, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection(*serving.address, timeout=DEADLINE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def connect(serving: Server, sent: bytes = b"") -> socket.socket:
    found = socket.create_connection(serving.address, timeout=DEADLINE)
    found.sendall(sent)
    return found


def test_it_answers_by_path_in_plain_text_that_nobody_keeps(serving: Server) -> None:
    status, headers, body = ask(serving, "/livez")
    assert (status, body) == (200, "live\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["Content-Length"] == "5"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"] == "fdbqueue"
    assert ask(serving, "/readyz?verbose=1")[::2] == (503, "not ready\n")


def test_head_is_answered_without_a_body(serving: Server) -> None:
    status, headers, body = ask(serving, "/readyz", "HEAD")
    assert (status, body, headers["Content-Length"]) == (503, "", "10")


@pytest.mark.parametrize("path", ["/", "/healthz", "/livez/", "/../livez", "*"])
def test_any_other_path_is_not_found(serving: Server, path: str) -> None:
    assert ask(serving, path)[::2] == (404, "there is nothing but /livez, /readyz, /fails\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_any_other_method_is_refused(serving: Server, method: str) -> None:
    status, headers, body = ask(serving, "/livez", method)
    assert (status, headers["Allow"], body) == (405, "GET, HEAD", "only GET and HEAD\n")


def test_an_answer_that_fails_says_why_and_the_next_one_is_made(serving: Server) -> None:
    assert ask(serving, "/fails")[0] == 500
    assert ask(serving, "/livez")[0] == 200


@pytest.mark.parametrize("sent", [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET /" + b"x" * 70_000])
def test_what_is_no_request_harms_nobody(serving: Server, sent: bytes) -> None:
    with socket.create_connection(serving.address, timeout=DEADLINE) as client:
        with contextlib.suppress(ConnectionError):  # It may be cut off in the middle.
            client.sendall(sent)
        assert ask(serving, "/livez")[0] == 200


def test_clients_that_send_nothing_keep_nobody_waiting(
    serving: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_server, "READ_SECONDS", DEADLINE)
    monkeypatch.setattr(probe_server._Request, "timeout", DEADLINE)
    slow = [connect(serving, b"GET /livez HT") for _ in range(20)]
    assert ask(serving, "/livez")[0] == 200
    for each in slow:
        each.close()


def test_a_client_that_goes_on_sending_too_slowly_is_cut_off(
    serving: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_server, "READ_SECONDS", 0.1)
    over, ended = threading.Event(), threading.Event()
    with connect(serving, b"GET /livez HTTP/1.1\r\n") as slow:

        def send() -> None:
            try:
                while not over.wait(0.02):
                    slow.sendall(b"x")
            except OSError:
                pass
            ended.set()

        threading.Thread(target=send).start()
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""
        over.set()
        assert ended.wait(DEADLINE)
    assert ask(serving, "/livez")[0] == 200


def test_clients_that_send_nothing_take_no_place_from_those_that_ask(
    serving: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_server, "MAX_CLIENTS", 2)
    with connect(serving) as first, connect(serving, b"GET /livez HT") as second:
        assert ask(serving, "/livez")[0] == 200
        assert first.recv(1) == b"", "the one that is silent for the longest time is cut off"
        second.sendall(b"TP/1.0\r\n\r\n")
        assert second.recv(12) == b"HTTP/1.0 200"


def test_more_requests_than_it_bears_are_turned_away_and_later_it_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_server, "MAX_CLIENTS", 2)
    asked, go = threading.Semaphore(0), threading.Event()

    def slow() -> Answer:
        asked.release()
        assert go.wait(DEADLINE)
        return text(HTTPStatus.OK, "slow")

    found = Server(("127.0.0.1", 0))
    found.serve({"/slow": slow})
    try:
        request = b"GET /slow HTTP/1.0\r\n\r\n"
        with connect(found, request) as first, connect(found, request) as second:
            assert asked.acquire(timeout=DEADLINE)
            assert asked.acquire(timeout=DEADLINE)
            with connect(found) as third:
                assert third.recv(1) == b""
            go.set()
            assert second.recv(12) == first.recv(12) == b"HTTP/1.0 200"

        def answers() -> bool:
            try:
                return ask(found, "/slow")[0] == 200
            except OSError:
                return False

        eventually(answers)
    finally:
        found.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("[::1]:{port}", 200),
        ("10.1.2.3", 200),
        ("localhost:{port}", 200),
        ("worker", 200),
        ("worker.shop.svc.cluster.local", 200),
        ("queues.internal:{port}", 200),
        ("metrics.example.org", 200),
        ("evil.example", 421),
        ("evil.example.:{port}", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_a_page_of_the_web_does_not_reach_it_by_a_name_of_its_own(host: str, status: int) -> None:
    found = Server(("127.0.0.1", 0), names=["metrics.example.org"])
    found.serve({"/metrics": lambda: text(HTTPStatus.OK, "secret")})
    try:
        connection = HTTPConnection(*found.address, timeout=DEADLINE)
        headers = {"Host": host.format(port=found.address[1])}
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert (b"secret" in answer.read()) == (status == 200)
        connection.close()
    finally:
        found.close()


def test_a_port_that_is_taken_is_an_error_and_one_that_is_closed_is_free(serving: Server) -> None:
    with pytest.raises(InvalidArgument, match="cannot listen there: Address already in use"):
        Server(serving.address)
    again = Server(("127.0.0.1", 0))
    again.close()  # Nobody was served.
    Server(again.address).close()


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host", "x" * 70])
def test_a_host_that_is_not_here_is_an_error(host: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot listen there"):
        Server((host, 0))


def test_an_address_is_written_as_clients_write_it() -> None:
    assert url(("127.0.0.1", 80)) == "http://127.0.0.1:80"
    assert url(("::1", 80)) == "http://[::1]:80"
