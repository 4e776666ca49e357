"""Nobody sees or changes anything who should not, and what others enqueued does nothing."""

from __future__ import annotations

import base64
import http.client
import os
import re
from contextlib import closing
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from fdbqueue import NewMessage, Queue, errors, fdb
from fdbqueue.web import Role, User, Users, application, read_users, server_sent_events
from fdbqueue.web.users import TRIES, TRY_SECONDS, Attempts
from tests.patience import DEADLINE
from tests.taking import take
from tests.web.serving import serving

VIEWER, OPERATOR = "a viewer's password", "an operator's password"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "</title><style>*{display:none}</style>",
    "javascript:alert(1)",
    "&lt;b&gt;&amp;",
    "data:text/html,<script>alert(1)</script>",
]
UNPRINTABLE = [
    "\x00\x07\x1b[2J",
    "\u202eevil\u202c",
    "\u2066\u200f\ufeff",
    "line\r\nset-cookie: a=b",
]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
QUERY = {"queue": "orders"}
LISTS = ("/consumers", "/subscriptions", "/keys", "/schedules", "/history")


class Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def harmless(text: str) -> None:
    """Raise ``AssertionError`` for a page with anything that is not of its templates."""
    page = Elements(text)
    assert page.tags.count("script") == 1
    assert not {"img", "style", "iframe", "object", "embed", "b"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        assert name != "style"
        if name in ("href", "src", "action"):
            assert value is not None
            assert re.match("/(?!/)|#", value), value
    assert not CONTROL.search(text)


def authorized(name: str, secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


@pytest.fixture
def users() -> Users:
    return Users([(User("vera", Role.VIEWER), VIEWER), (User("otto", Role.OPERATOR), OPERATOR)])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_does_nothing(
    db: fdb.Database, space: fdb.Subspace, pages: TestClient, text: str
) -> None:
    queue = Queue.create(db, text, root=space, max_attempts=1)
    message_id = queue.enqueue(db, text.encode(), headers={text: text}, key=text, unique=text)
    queue.enqueue(db, text.encode(), key=text)
    html = NewMessage(text.encode(), content_type="text/html", priority=9)
    queue.enqueue_many(db, [html])
    delivery = take(db, queue, consumer=text)
    queue.reject(db, delivery, text)
    queue.subscriptions.open(db, text)
    queue.schedules.set(db, text, every=3600)
    asked = {"queue": text, "contains": text, "selector": "x = '" + text.replace("'", "''") + "'"}
    for path, query in (
        ("/", {"contains": text}),
        ("/queue", {"queue": text}),
        ("/queue", {**asked, "state": text}),
        ("/queue", {"queue": text, "state": "waiting"}),
        ("/queue", {"queue": text, "selector": text}),
        ("/queue", {"queue": f"no {text}"}),
        ("/message", {"queue": text, "id": message_id}),
        ("/message", {"queue": text, "id": delivery.id}),
        ("/message", {"queue": text, "id": text}),
        ("/dead", {"queue": text}),
        ("/dead", {**asked, "reason": text, "error": text}),
        ("/keys", {"queue": text, "key": text}),
        *((path, {"queue": text}) for path in LISTS),
    ):
        answer = pages.get(path, params=query)
        assert answer.status_code in (200, 400, 404), answer.text
        harmless(answer.text)


@pytest.mark.parametrize("text", UNPRINTABLE)
def test_unprintable_text_is_shown_as_what_it_is(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, text: str
) -> None:
    message_id = queue.enqueue(db, text.encode(), headers={"note": text}, priority=0)
    queue.enqueue(db, text.encode())
    delivery = take(db, queue)
    queue.reject(db, delivery, text)
    shown = text.encode("unicode_escape").decode()

    for path, query in (
        ("/queue", QUERY),
        ("/message", {**QUERY, "id": message_id}),
        ("/dead", QUERY),
        ("/queue", {"queue": text}),
    ):
        answer = pages.get(path, params=query)
        harmless(answer.text)
        assert shown.replace("\\r\\n", "") in answer.text.replace("\\r\\n", "").replace("\\r\n", "")
        for cookie in answer.headers.get_list("set-cookie"):
            assert cookie.startswith("fdbqueue_form=")


def test_every_answer_forbids_foreign_scripts_frames_and_guesses(pages: TestClient) -> None:
    for path in ("/", "/queue?queue=nowhere", "/static/live.js", "/nowhere", "/../etc/passwd"):
        headers = pages.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert pages.get("/").headers["cache-control"] == "no-store"


def test_a_fault_is_answered_with_the_same_headers(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def who(request: Request) -> User:
        raise ZeroDivisionError("a secret")

    app = application(db, root=space, hosts=["testserver"], authenticate=who)
    answer = TestClient(app, raise_server_exceptions=False).get("/")
    assert answer.status_code == 500
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert "secret" not in answer.text


@pytest.mark.parametrize("size", ["9" * 5_000, "0" * 5_000, "٣", "-1", "1e9"])
def test_a_number_of_any_length_is_none_too_many(
    pages: TestClient, queue: Queue[bytes], size: str
) -> None:
    for path in ("/?limit=", "/queue?queue=orders&limit=", "/audit?limit=", "/limits?size="):
        assert pages.get(path + size).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "", "[", "10.0.0.1"])
def test_a_request_under_another_name_is_refused(pages: TestClient, host: str) -> None:
    answer = pages.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "orders" not in answer.text


@pytest.mark.parametrize("host", ["testserver", "TESTSERVER:9810"])
def test_a_request_under_the_right_name_is_answered(pages: TestClient, host: str) -> None:
    assert pages.get("/", headers={"host": host}).status_code == 200


def test_another_site_may_link_here_and_not_fetch(pages: TestClient) -> None:
    fetched = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    clicked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert pages.get("/", headers=fetched).status_code == 403
    assert pages.get("/", headers=clicked).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(pages: TestClient, method: str) -> None:
    assert pages.request(method, "/").status_code == 405


def test_only_a_known_user_sees_the_pages(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], users: Users
) -> None:
    app = partial(application, db, root=space, hosts=["testserver"], users=users)

    for wrong in (
        {},
        authorized("vera", OPERATOR),
        authorized("", VIEWER),
        authorized("otto", ""),
        {"authorization": "Basic not base64"},
        {"authorization": "Basic " + base64.b64encode(b"\xff:\xff").decode()},
        {"authorization": f"Digest {VIEWER}"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
    ):
        pages = TestClient(app())
        for path in ("/", "/queue?queue=orders", "/events", "/static/live.js"):
            answer = pages.get(path, headers=wrong)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert "orders" not in answer.text

    pages = TestClient(app())
    assert "vera, viewer" in re.sub(
        "<[^>]+>", "", pages.get("/", headers=authorized("vera", VIEWER)).text
    )
    token = {"authorization": f"Bearer {OPERATOR}"}
    assert "otto, operator" in re.sub("<[^>]+>", "", pages.get("/", headers=token).text)


def test_a_file_of_users_is_read_strictly(tmp_path: Path) -> None:
    file = tmp_path / "users"

    def problem(text: str, mode: int = 0o600) -> str:
        file.write_text(text)
        file.chmod(mode)
        with pytest.raises(errors.InvalidArgument) as raised:
            read_users(file)
        return str(raised.value)

    assert "chmod 600" in problem("vera viewer 0123456789abcdef", 0o640)
    assert "chmod 600" in problem("vera viewer 0123456789abcdef", 0o604)
    assert "line 2" in problem("# nobody\nvera admin 0123456789abcdef")
    assert "line 1" in problem("vera viewer")
    assert "line 1" in problem("ve:ra viewer 0123456789abcdef")
    assert "twice" in problem("a viewer 0123456789abcdef\na viewer 0123456789abcdeg")
    assert "16 characters" in problem("a viewer 0123456789abcde")
    assert "no user" in problem("# nobody\n")

    assert "line 1" in problem("a viewer 0123456789abcdef more")
    file.write_bytes(b"vera viewer 0123456789abcde\xe9")
    with pytest.raises(errors.InvalidArgument, match="not UTF-8"):
        read_users(file)

    file.write_text(
        "\n# people\nvera viewer 0123456789abcdef # her\n  otto operator #1#9abcdefghijkl\n"
    )
    users = read_users(file)
    found = users.of(authorized("vera", "0123456789abcdef")["authorization"])
    assert found == User("vera", Role.VIEWER)
    found = users.of(authorized("otto", "#1#9abcdefghijkl")["authorization"])
    assert found == User("otto", Role.OPERATOR)
    assert users.of(authorized("otto", "#1")["authorization"]) is None


def test_a_file_of_users_belongs_to_who_serves_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users"
    file.write_text("vera viewer 0123456789abcdef")
    file.chmod(0o600)
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    with pytest.raises(errors.InvalidArgument, match="belongs to another user"):
        read_users(file)


def test_a_removed_user_is_one_no_more(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_sent_events, "BEAT_SECONDS", 0.01)
    file = tmp_path / "users"

    def write(text: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_text(text)
        fresh.chmod(0o600)
        fresh.replace(file)

    write(f"vera viewer {VIEWER.replace(' ', '-')}\notto operator {OPERATOR.replace(' ', '-')}\n")
    vera = authorized("vera", VIEWER.replace(" ", "-"))
    otto = authorized("otto", OPERATOR.replace(" ", "-"))
    with serving(application(db, root=space, users=read_users(file))) as address:

        def status(headers: dict[str, str]) -> int:
            with closing(http.client.HTTPConnection(address, timeout=DEADLINE)) as connection:
                connection.request("GET", "/", headers=headers)
                return connection.getresponse().status

        with closing(http.client.HTTPConnection(address, timeout=DEADLINE)) as connection:
            connection.request("GET", "/events", headers=vera)
            stream = connection.getresponse()
            assert stream.status == 200
            write(f"otto operator {OPERATOR.replace(' ', '-')}\n")
            assert b"retry" in stream.read(), "it has ended"
        assert (status(vera), status(otto)) == (401, 200)
        write("otto operator\n")
        assert status(otto) == 401
        write(f"otto viewer {OPERATOR.replace(' ', '-')}\n")
        assert status(otto) == 200


def test_wrong_secrets_are_logged_and_not_looked_at_without_end(
    db: fdb.Database, space: fdb.Subspace, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    pages = TestClient(application(db, root=space, hosts=["testserver"], users=users))
    for _ in range(TRIES):
        assert pages.get("/", headers=authorized("vera", "wrong\x1b[2J")).status_code == 401
    late = pages.get("/", headers=authorized("vera", VIEWER))
    assert (late.status_code, late.headers["retry-after"]) == (429, "60")
    assert pages.get("/", headers=authorized("otto", OPERATOR)).status_code == 200
    assert pages.get("/").status_code == 401, "no secret is no wrong one"
    told = [each.getMessage() for each in caplog.records if each.name == "fdbqueue.web"]
    assert told == ["a wrong secret for vera from testclient"] * TRIES


def test_wrong_secrets_are_forgotten_after_a_while() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    whose = ("127.0.0.1", "vera")
    for _ in range(TRIES):
        assert not attempts.over(whose)
        attempts.wrong(whose)
    assert attempts.over(whose)
    assert not attempts.over(("127.0.0.2", "vera"))
    now = TRY_SECONDS
    assert not attempts.over(whose)


def test_an_application_may_say_who_asks_in_a_coroutine(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    async def who(request: Request) -> User | None:
        name = request.headers.get("x-login")
        return None if name is None else User(name)

    pages = TestClient(application(db, root=space, hosts=["testserver"], authenticate=who))
    assert pages.get("/").status_code == 401
    assert "vera, viewer" in re.sub("<[^>]+>", "", pages.get("/", headers={"x-login": "vera"}).text)


@pytest.mark.parametrize("found", [True, False, "vera"])
def test_an_application_that_names_no_user_is_told(
    db: fdb.Database, space: fdb.Subspace, found: Any
) -> None:
    app = application(db, root=space, hosts=["testserver"], authenticate=lambda _: found)
    answer = TestClient(app, raise_server_exceptions=False).get("/")
    assert answer.status_code == 500
    assert answer.text == f"authenticate={found!r}: must return a User, or None\n"


def test_an_application_mounts_the_pages_and_says_who_asks(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes]
) -> None:
    def who(request: Request) -> User | None:
        name = request.headers.get("x-login")
        return None if name is None else User(name)

    inner = application(db, root=space, hosts=None, authenticate=who)
    outer = TestClient(Starlette(routes=[Mount("/admin/queues", inner)]))

    refused = outer.get("/admin/queues/")
    assert refused.status_code == 401
    answer = outer.get("/admin/queues/", headers={"x-login": "vera"})
    links = [value for name, value in Elements(answer.text).attributes if name in ("href", "src")]
    assert links
    assert all(link and link.startswith(("/admin/queues/", "#")) for link in links)
    for link in links:
        assert link is not None
        if not link.startswith("#"):
            assert outer.get(link, headers={"x-login": "vera"}).status_code == 200, link
    assert "Path=/admin/queues;" in refused.headers["set-cookie"]
    assert "SameSite=Strict" in refused.headers["set-cookie"]
    assert "HttpOnly" in refused.headers["set-cookie"]
