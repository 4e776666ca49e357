"""What the pages show is what the queues say, and every page is bounded."""

from __future__ import annotations

import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.errors import OperationTimedOut
from fdbqueue.messages import history as events
from fdbqueue.queue.admin import finding
from fdbqueue.values.text import duration
from fdbqueue.web import filters
from fdbqueue.web.pages import history as history_page
from tests import consumers
from tests.taking import take


def cells(row: str) -> list[str]:
    return [
        re.sub(r"<[^>]+>", "", each).strip()
        for each in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)
    ]


def rows(text: str) -> list[str]:
    return re.findall(r"<tr[ >].*?</tr>", text.partition("<tbody>")[2], re.S)


def ids(text: str) -> list[str]:
    """The messages that a page lists."""
    return re.findall(r'<a class="id"[^>]*>([^<]+)</a>', text)


def get(pages: TestClient, path: str, status: int = 200, /, **query: object) -> str:
    answer = pages.get(path, params={name: str(value) for name, value in query.items()})
    assert answer.status_code == status, answer.text
    return answer.text


def test_the_overview_counts_each_queue(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], pages: TestClient
) -> None:
    for _ in range(5):
        queue.enqueue(db, b"x")
    queue.enqueue(db, b"later", delay=3600)
    taken = [queue.receive(db) for _ in range(3)]
    assert taken[0]
    assert taken[1]
    queue.ack(db, taken[0])
    queue.reject(db, taken[1], "no good")
    Queue.create(db, "idle", root=space, paused=True)

    text = get(pages, "/")

    idle, orders = rows(text)
    assert "paused" in idle
    ready, _, _, _, _, waiting, retrying, scheduled, leased, dead = cells(orders)
    assert (ready, waiting, retrying, scheduled, leased, dead) == ("2", "0", "0", "1", "1", "1")
    assert 'data-since="' in orders
    assert [*map(str.strip, re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", text)[0])] == [
        "Queues",
        "2",
    ]


def test_the_overview_is_paged_filtered_and_sorted(
    db: fdb.Database, space: fdb.Subspace, pages: TestClient
) -> None:
    for n in range(1, 13):
        made = Queue.create(db, f"mail-{n}", root=space)
        for _ in range(n % 3):
            made.enqueue(db, b"x")

    def names(**query: object) -> list[str]:
        return re.findall(r'<tr data-queue="([^"]+)"', get(pages, "/", **query))

    assert names(limit=5) == [f"mail-{n}" for n in range(1, 6)]
    assert names(limit=5, page=3) == ["mail-11", "mail-12"]
    assert names(limit=5, page=99) == ["mail-11", "mail-12"]
    assert names(contains="L-1") == ["mail-1", "mail-10", "mail-11", "mail-12"]
    assert names(sort="ready")[:4] == ["mail-2", "mail-5", "mail-8", "mail-11"]
    assert len(names(sort="no such column", page="no number")) == 12


def test_a_queue_lists_its_messages_page_by_page(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    sent = [queue.enqueue(db, b"%d" % n, headers={"n": n}) for n in range(7)]

    first = get(pages, "/queue", queue="orders", limit=3)
    after = re.search(r"after=([^#\"&]+)", first)
    assert after is not None
    second = get(pages, "/queue", queue="orders", limit=3, after=after[1])

    assert ids(first) == sent[:3]
    assert ids(second) == sent[3:6]
    assert ids(get(pages, "/queue", queue="orders", selector="n > 4")) == sent[5:]


def test_a_queue_lists_delayed_messages_and_those_that_wait_for_a_key(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    late = queue.enqueue(db, b"late", delay=3600)
    keyed = [queue.enqueue(db, b"x", key="tenant-1") for _ in range(3)]

    assert ids(get(pages, "/queue", queue="orders", state="scheduled")) == [late]
    assert ids(get(pages, "/queue", queue="orders", state="waiting")) == keyed[1:]


def test_a_filter_that_matches_nothing_ends_early_and_says_so(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "STEP", 3)
    monkeypatch.setattr(filters, "MAX_CHECKED", 6)
    sent = [queue.enqueue(db, b"x", headers={"n": n}) for n in range(9)]

    text = get(pages, "/queue", queue="orders", selector="n = 8")
    assert ids(text) == []
    assert "None of the next 6 messages matches; there are more." in text
    assert f"after={sent[5]}" in text
    assert ids(get(pages, "/queue", queue="orders", selector="n = 8", after=sent[5])) == [sent[8]]


@pytest.mark.parametrize(
    ("payload", "content_type", "shown"),
    [
        (
            b'{"b":1,"a":[true,null]}',
            "application/json",
            '{\n  "b": 1,\n  "a": [\n    true,\n    null\n  ]\n}',
        ),
        (b"{broken", "application/json", "{broken"),
        (b"[" * 100_000, "application/json", "[" * 65_536),
        ("Größe\n\tzwei".encode(), "text/plain", "Größe\n\tzwei"),
        (
            b"\xff\x00AZ",
            "text/plain",
            "00000000  ff 00 41 5a                                      ..AZ",
        ),
        (b"\x1b[31m\x00\xe2\x80\xae", "text/plain", "\\x1b[31m\\x00\\u202e"),
        (("é" * 40_000).encode(), "text/plain", "é" * 32_768),
        (b"a" + ("é" * 40_000).encode(), "text/plain", "a" + "é" * 32_767),
    ],
)
def test_a_payload_is_shown_by_its_content_type(
    db: fdb.Database,
    queue: Queue[bytes],
    pages: TestClient,
    payload: bytes,
    content_type: str,
    shown: str,
) -> None:
    (message_id,) = queue.enqueue_many(db, [NewMessage(payload, content_type=content_type)])

    text = get(pages, "/message", queue="orders", id=message_id)

    found = re.search(r"<pre[^>]*>(.*?)</pre>", text, re.S)
    assert found is not None
    assert unescape(found[1]) == shown


def test_a_payload_is_downloaded_byte_for_byte_and_never_shown_by_the_browser(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    payload = b"<script>alert(1)</script>" + bytes(range(256)) * 4_000
    (message_id,) = queue.enqueue_many(db, [NewMessage(payload, content_type="text/html")])

    answer = pages.get("/payload", params={"queue": "orders", "id": message_id})

    assert answer.content == payload
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="payload"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_message_has_a_timeline(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "STEP", 2)
    queue.set_options(db, history_seconds=3600)
    queue.enqueue(db, b"another")
    message_id = queue.enqueue(db, b"x", priority=9)
    delivery = take(db, queue, consumer="worker-7")
    queue.ack(db, delivery)

    text = get(pages, "/message", queue="orders", id=message_id)

    assert re.findall(r"<b>([^<]+)</b>", text) == ["enqueue", "lease", "ack"]
    assert "worker-7" in text
    assert "It is not in the queue" in text


def test_a_message_shows_how_its_attempts_failed(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    message_id = queue.enqueue(db, b"x")
    for error in (LookupError("<script>"), ValueError("no\x1b[2J street")):
        (delivery,) = queue.receive_many(db, 1, consumer="worker-7")
        try:
            raise error
        except ValueError as caught:
            queue.settle(db, [delivery], {message_id: caught})
        except LookupError:
            queue.release(db, delivery, error=str(error), delay=0)

    text = get(pages, "/message", queue="orders", id=message_id)

    shown = text.split("Failed attempts</h2>")[1].split("</section>")[0]
    assert shown.index("no\\x1b[2J street") < shown.index("&lt;script&gt;")
    assert "worker-7" in shown
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert "raise error" in shown.split("<details open>")[1]


def test_dead_letters_are_counted_by_reason_and_filtered(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    for n, reason in enumerate(["timeout", "timeout", "declined"]):
        queue.enqueue(db, b"x", headers={"n": n})
        delivery = take(db, queue)
        queue.reject(db, delivery, reason)
    dead = [each.id for each in queue.dead.list(db)]

    text = get(pages, "/dead", queue="orders")

    assert [cells(row) for row in rows(text)[:2]] == [["2"], ["1"]]
    assert ids(text) == dead
    assert ids(get(pages, "/dead", queue="orders", reason="time")) == dead[:2]
    assert ids(get(pages, "/dead", queue="orders", selector="n > 0")) == dead[1:]
    assert ids(get(pages, "/dead", queue="orders", reason="time", selector="n > 0")) == [dead[1]]


def test_what_is_not_there_or_wrong_is_said(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.enqueue(db, b"x")
    gone = queue.enqueue(db, b"x")
    assert queue.cancel(db, gone)

    assert "nowhere" in get(pages, "/queue", 404, queue="nowhere")
    assert "It did not work" in get(pages, "/queue", 400, queue="")
    assert "selector" in get(pages, "/queue", 400, queue="orders", selector="n >")
    assert "It is not in the queue" in get(pages, "/message", 404, queue="orders", id=gone)
    get(pages, "/message", 400, queue="orders", id="no id")
    get(pages, "/payload", 404, queue="orders", id=gone)


def test_an_unreadable_queue_is_shown_as_such(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.enqueue(db, b"x")
    meta = queue._keys.meta
    db[meta] = b"\x63" + (db[meta] or b"")[1:]

    assert "unreadable" in get(pages, "/")
    text = get(pages, "/queue", queue="orders")
    assert "The queue cannot be read" in text


def test_a_store_that_fails_is_said(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationTimedOut(seconds=10.0)

    monkeypatch.setattr(Queue, "messages", fail)
    assert "It did not work" in get(pages, "/queue", 503, queue="orders")


def test_consumers_and_their_leases_are_shown(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    sent = [queue.enqueue(db, b"x") for _ in range(5)]
    for n in range(4):
        assert queue.receive(db, consumer=f"worker-{n}", lease=600)
    consumers.register(db, queue, "billing")
    first = get(pages, "/consumers", queue="orders", limit=3)
    following = re.search(r"after=([0-9a-f]+)", first)
    assert following is not None

    assert "billing" in first
    assert ids(first) == sent[:3]
    assert cells(rows(first.partition("<h2>Leases")[2])[0])[:3] == ["worker-0", "1", "5"]
    assert ids(get(pages, "/consumers", queue="orders", limit=3, after=following[1])) == [sent[3]]
    get(pages, "/consumers", queue="orders", after="no token")


def test_subscriptions_have_cursors_and_lag(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    for n in range(6):
        queue.enqueue(db, b"x", headers={"n": n})
    seen = queue.subscriptions.open(db, "all", mode="browse")
    queue.subscriptions.open(db, "odd", selector="n = 1 OR n = 3 OR n = 5")
    assert [*seen.browse(db, 2)]

    all_, odd = rows(get(pages, "/subscriptions", queue="orders"))

    assert cells(all_) == ["browse", "\u2013", "4", "5: 2"]
    assert cells(odd)[2] == "3"


def test_schedules_show_their_ticks(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.schedules.set(db, "a <b>", every=90)
    queue.schedules.set(db, "nightly", cron="0 3 * * *", timezone="Europe/Berlin")
    queue.schedules.pause(db, "nightly")
    message_id = queue.schedules.run(db, "nightly")
    known = queue.schedules.get(db, "a <b>")
    assert known is not None

    every, nightly = rows(get(pages, "/schedules", queue="orders"))

    assert "a &lt;b&gt;" in every
    assert "<b>" not in every
    assert cells(every)[0] == "every 90 s"
    assert f'data-due="{known.next_ms}"' in every
    assert "paused" in nightly
    assert cells(nightly)[0] == "0 3 * * * Europe/Berlin"
    assert cells(nightly)[1] == "\u2013"
    assert f"id={message_id}" in nightly
    first = get(pages, "/schedules", queue="orders", limit=1)
    assert len(rows(first)) == 1
    assert "after=a+%3Cb%3E" in first
    second = get(pages, "/schedules", queue="orders", limit=1, after="a <b>")
    assert "nightly" in rows(second)[0]
    assert "Next page" not in second


def test_keys_show_who_waits_and_who_holds_a_slot(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    for key in ("tenant-1", "tenant-2", "tenant-2"):
        for _ in range(2):
            queue.enqueue(db, b"x", key=key)
    queue.keys["tenant-3"].set(db, concurrency=7)
    (held,) = queue.keys["tenant-2"].state(db).out.values()

    listed = rows(get(pages, "/keys", queue="orders"))
    one = get(pages, "/keys", queue="orders", key="tenant-2")

    assert [cells(row)[:2] for row in listed] == [
        ["1 of 1", "1"],
        ["1 of 1", "3"],
        ["0 of 7", "0"],
    ]
    assert cells(listed[2])[3] == "concurrency: 7"
    assert ids(one) == [held]
    assert "1 of 1" in one
    assert len(rows(get(pages, "/keys", queue="orders", limit=1))) == 1


def test_plans_and_sinks_are_shown(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    sink = queue.streams.sink("load of Monday")
    stager = sink.stage(db, 0)
    stager.plain(b"x", 4)
    attempt = stager.finish()
    text = get(pages, "/streams", queue="orders")
    (row,) = rows(text)  # and no plan
    assert "load of Monday" in row
    assert cells(row)[0] == "staged"

    sink.publish(db, 0, [attempt])
    run = queue.streams.plans.planner("billing")
    run.next(db, run.begin(db))
    plans, _, published = get(pages, "/streams", queue="orders").partition("<h2>Sinks")
    assert cells(rows(plans)[0])[:5] == ["0", "1", "sealed", "1", "1"]
    assert cells(rows(published)[0])[0] == "complete"


def test_a_history_shows_its_newest_events_of_a_time(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "keeps no history" in get(pages, "/history", queue="orders")
    queue.set_options(db, history_seconds=86_400)
    sent = [queue.enqueue(db, b"x") for _ in range(5)]
    queue.cancel(db, sent[0])
    monkeypatch.setattr(history_page, "SHOWN", 3)

    text = get(pages, "/history", queue="orders", span=60)

    assert ids(text) == [sent[0], sent[4], sent[3]]
    assert dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", text)) == {
        "enqueue": "5",
        "purge ready": "1",
    }
    monkeypatch.setattr(history_page, "STEP", 2)
    monkeypatch.setattr(history_page, "MAX_READ", 4)
    text = get(pages, "/history", queue="orders", span="none")
    assert "the newest 4 events" in text
    assert ids(text) == [sent[0], sent[4], sent[3]]


def test_one_field_searches_all_states(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    sent = [queue.enqueue(db, b'{"order": "A-%d"}' % n, headers={"region": "eu"}) for n in range(3)]
    later = queue.enqueue(db, b'{"order": "A-9"}', delay=3600)
    held = take(db, queue, consumer="packer-7")

    # The id of a message leads to it, and a condition to all that match
    answer = pages.get("/find", params={"queue": "orders", "what": later}, follow_redirects=False)
    assert answer.headers["location"].endswith(f"/message?queue=orders&id={later}")
    found = get(pages, "/find", queue="orders", what="payload.order LIKE 'A-_'")
    assert ids(found) == [*sent, later]
    assert "packer-7" in found
    assert "Held since" in get(pages, "/message", queue="orders", id=held.id)
    told = get(pages, "/find", queue="orders", what="regoin = 'eu'")
    assert "no message has a header" in told
    assert "they have region" in told


def test_lists_of_messages_show_their_keys(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.enqueue(db, b"x")
    assert 'data-label="Key"' not in get(pages, "/queue", queue="orders")
    queue.enqueue_many(db, [NewMessage(b"x", key="<carl>") for _ in range(3)])
    held = queue.receive_many(db, 2)
    queue.reject(db, held, "no")

    link = '<a href="/keys?queue=orders&amp;key=%3Ccarl%3E"><bdi>&lt;carl&gt;</bdi>'
    for path, terms in (("/queue", {}), ("/dead", {}), ("/find", {"what": "key = '<carl>'"})):
        assert link in get(pages, path, queue="orders", **terms), path


def test_a_history_has_a_report(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.set_options(db, history_seconds=86_400)
    queue.enqueue_many(db, [b"x"] * 3)
    monkeypatch.setattr(history_page, "STEP", 2)
    for delivery in queue.receive_many(db, 2):
        queue.ack(db, delivery)

    text = get(pages, "/history", queue="orders", span=60)

    ((*counts, waiting, service),) = [cells(row) for row in rows(text) if "Waiting" in row]
    assert counts[-5:] == ["3", "2", "0", "2", "0"]
    assert re.fullmatch(r"(\d+ ms(, |$)){3}", waiting)
    assert re.fullmatch(r"(\d+ ms(, |$)){3}", service)
    assert "Done from" in text


def test_bars_count_what_happened_in_each_span() -> None:
    assert history_page.bars([], 0, 0) == ("", 0)
    path, most = history_page.bars([0, 0, 30, 59, 60], 0, 60)
    assert (path.count("M"), most) == (3, 2)
    assert path.startswith("M0.0 60v-60.0h4.0v60.0z")
    assert history_page.bars([1_000], 1_000, 1_001)[1] == 1


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s")),
        *((90_000, "1.5 min"), (5_400_000, "1.5 h"), (129_600_000, "1.5 d")),
    ],
)
def test_durations_read_like_a_person_says_them(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_a_history_begins_where_it_is_asked_to(db: fdb.Database, queue: Queue[bytes]) -> None:
    queue.set_options(db, history_seconds=86_400)
    old = queue.enqueue(db, b"x")

    def stamp(seconds: float) -> bytes:
        return queue._read(db, lambda tr: events.stamp_ago(tr, queue._scope(tr), seconds))

    before, after = stamp(3_600), stamp(0)
    while stamp(0) == after:  # a later version
        queue.enqueue(db, b"x")
    new = queue.enqueue(db, b"x")
    assert [event.id for event in queue.history(db, 1, before)] == [old]
    assert old not in [event.id for event in queue.history(db, 100, stamp(0))]
    assert queue.history(db, 100, before)[-1].id == new


def test_a_huge_payload_makes_a_small_page(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    smiles = "\U0001f600".encode() * 99_999
    for payload in (b"x" * 3_000_000, b"\xff" * 3_000_000, b"[" * 200_000, smiles):
        sent = queue.enqueue(db, payload, headers={"h": "y" * 7_000})
        assert len(get(pages, "/message", queue="orders", id=sent)) < 500_000
    assert len(get(pages, "/queue", queue="orders")) < 50_000
