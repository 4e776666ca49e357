"""The pages behind a reverse proxy, in a folder, under the name of the proxy."""

from __future__ import annotations

import http.client
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from fdbqueue import Queue, fdb
from fdbqueue.web import application
from tests.patience import DEADLINE, eventually
from tests.web.proxy import Setting, proxying
from tests.web.serving import serving

NAME = "queues.example.org"
ROOT = Path(__file__).parents[2]


def documented(headers: Mapping[str, str]) -> Mapping[str, str]:
    """As the example of docs/web.md."""
    return {
        "Host": headers["host"],
        "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "https",
    }


def bare(headers: Mapping[str, str]) -> Mapping[str, str]:
    """As nginx where nothing is said."""
    return {"Host": "127.0.0.1", "Connection": "close"}


@pytest.mark.parametrize("setting", [documented, bare])
@pytest.mark.parametrize("sent", [{"Sec-Fetch-Site": "same-origin"}, {}])
def test_an_operator_acts_behind_a_proxy(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    setting: Setting,
    sent: dict[str, str],
) -> None:
    queue.enqueue(db, b"x")
    app = application(db, root=space, hosts=["127.0.0.1", NAME], allow_actions=True)
    with (
        serving(app, root_path="/queues") as behind,
        proxying(behind, "/queues", setting) as address,
        closing(http.client.HTTPConnection(address, timeout=DEADLINE)) as browser,
    ):

        def request(path: str, form: Mapping[str, str] | None = None, **headers: str) -> str:
            method, body = ("GET", None) if form is None else ("POST", urlencode(form))
            browser.request(method, path, body, {"Host": NAME, **headers})
            answer = browser.getresponse()
            text = answer.read().decode()
            if answer.status == 303:
                return answer.headers["location"]
            assert answer.status == 200, text
            cookie = answer.headers["set-cookie"]
            if cookie:
                assert "Path=/queues;" in cookie
                assert ("Secure" in cookie) == (setting is documented)
                cookies.append(cookie.partition(";")[0])
            return text

        cookies: list[str] = []
        page = request("/queues/")
        for place in re.findall(r'(?:href|src)="(/[^"]*)"', page):
            assert place.startswith("/queues/")
            request(unescape(place))
        question = request("/queues/ask?action=purge&queue=orders", Cookie=cookies[0])
        form = {
            name: unescape(value)
            for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', question)
        }
        from_here = {**sent, "Origin": f"https://{NAME}", "Cookie": cookies[0]}
        place = request("/queues/act", form, **from_here)
        assert place.startswith("/queues/run?")
        eventually(lambda: "1 message removed." in request(place, Cookie=cookies[0]))
    assert queue.depth(db).ready == 0


@pytest.mark.parametrize("setting", [documented, bare])
@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": f"https://{NAME}", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8000"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_no_other_site_acts_behind_a_proxy(
    db: fdb.Database, space: fdb.Subspace, setting: Setting, sent: dict[str, str]
) -> None:
    app = application(db, root=space, hosts=["127.0.0.1", NAME], allow_actions=True)
    with (
        serving(app) as behind,
        proxying(behind, "", setting) as address,
        closing(http.client.HTTPConnection(address, timeout=DEADLINE)) as browser,
    ):
        browser.request("POST", "/act", "action=purge", {"Host": NAME, **sent})
        answer = browser.getresponse()
        assert answer.status == 403
        assert b"not from these pages" in answer.read()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
def test_nginx_takes_the_example(tmp_path: Path) -> None:
    example = re.search("```nginx\n(.*?)```", (ROOT / "docs/web.md").read_text(), re.S)
    assert example is not None
    locations = re.search(r"location.*?\n    }\n", example[1], re.S)
    assert locations is not None
    file = tmp_path / "nginx.conf"
    server = f"server {{ listen 127.0.0.1:8099; {locations[0]} }}"
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    kept = "".join(f"{kind}_temp_path {tmp_path}/{kind}; " for kind in kinds)
    file.write_text(f"pid {tmp_path}/pid; events {{}} http {{ {kept} access_log off; {server} }}")
    subprocess.run(["nginx", "-t", "-p", str(tmp_path), "-c", str(file)], check=True)
