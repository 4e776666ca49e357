"""Groups, results and shared limits on the pages, and what operators may do about them."""

from __future__ import annotations

import re
from typing import Any

from starlette.testclient import TestClient

from fdbqueue import NewMessage, Queue, Then, fdb
from tests.taking import take
from tests.web.test_actions import act, acting, log
from tests.web.test_pages import cells, get, ids, rows

__all__ = ["acting"]


def names(text: str) -> list[str]:
    """What the first column of a list says."""
    heads = re.findall(r'<th scope="row">(.*?)</th>', text, re.S)
    return [re.sub(r"<[^>]+>", "", each).strip() for each in heads]


def test_groups_are_listed_with_their_progress_and_followed_to_their_callback(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.enqueue_many(db, [b"x", b"x", b"x"], group=Then(b"all done", name="load-1"))
    first = take(db, queue)
    queue.ack(db, first)
    for n in (2, 3):
        queue.enqueue_many(db, [b"x"], group=Then(b"y", name=f"load-{n}"))

    (row, *_) = rows(get(pages, "/groups", queue="orders"))
    state, ended, done, dead, failed, _, then = cells(row)[:7]
    assert (state, ended, done, dead, failed) == ("running", "1 of 3", "1", "0", "0")
    assert then == "a message in orders, when all are done"
    assert '<progress max="3" value="1"' in row

    page = get(pages, "/groups", queue="orders", limit=2)
    assert names(page) == ["load-1", "load-2"]
    assert "after=load-2" in page
    assert names(get(pages, "/groups", queue="orders", limit=2, after="load-2")) == ["load-3"]

    for _ in range(2):
        delivery = take(db, queue)
        queue.ack(db, delivery)
    found = queue.groups.get(db, "load-1")
    assert found is not None
    assert found.callback_id is not None
    one = get(pages, "/groups", queue="orders", group="load-1")
    assert names(one) == ["load-1"]
    assert f"id={found.callback_id}" in one
    assert "There is no group" in get(pages, "/groups", queue="orders", group="nowhere")
    get(pages, "/groups", 404, queue="nowhere")


def test_a_group_is_forgotten_and_its_messages_stay(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    queue.enqueue_many(db, [b"x", b"x"], group=Then(b"y", name="load-1"))
    told = act(acting, "forget-group", group="load-1")
    assert told == ("Forget 1 group, so that no message follows?", "1 group forgotten.")
    assert queue.groups.get(db, "load-1") is None
    assert queue.depth(db).ready == 2
    assert [each.what for each in log(db, space)] == [{"group": "load-1"}] * 2
    gone = {"action": "forget-group", "queue": "orders", "group": "load-1"}
    assert acting.get("/ask", params=gone).status_code == 404


def test_the_result_of_a_message_is_on_its_page(
    db: fdb.Database, space: fdb.Subspace, pages: TestClient
) -> None:
    queue: Queue[Any] = Queue.create(db, "orders", root=space)
    message = NewMessage({"n": 1}, keep_result=3600)
    done, dies, bare = queue.enqueue_many(db, [message, message, message])
    without = queue.enqueue(db, {"n": 1})
    assert "it has not ended" in get(pages, "/message", queue="orders", id=done)
    assert "Result" not in get(pages, "/message", queue="orders", id=without)

    delivery = take(db, queue)
    queue.ack(db, delivery, result={"sum": "<script>owned()</script>\u202e"})
    text = get(pages, "/message", queue="orders", id=done)
    assert "It is not in the queue" in text
    shown = re.search(r'aria-label="Result">(.*?)</pre>', text, re.S)
    assert shown is not None
    assert "&lt;script&gt;owned()&lt;/script&gt;\\u202e" in shown[1]

    delivery = take(db, queue)
    queue.reject(db, delivery, "no good")
    assert "<dt>Ended</dt><dd>dead</dd>" in get(pages, "/message", queue="orders", id=dies)
    delivery = take(db, queue)
    queue.ack(db, delivery)
    assert "Its consumer gave none" in get(pages, "/message", queue="orders", id=bare)


def test_shared_limits_are_listed_with_what_is_out_and_waits_in_all_queues(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], pages: TestClient
) -> None:
    other = Queue.create(db, "mail", root=space)
    assert "No limit is set" in get(pages, "/limits")
    queue.limits["api", "stripe"].set(db, concurrency=2)
    queue.limits["tenant", "7"].set(db, rate="5/min")
    sent = [queue.enqueue(db, b"x", limits={"api": "stripe"}) for _ in range(3)]
    sent.append(other.enqueue(db, b"x", limits={"api": "stripe"}))

    text = get(pages, "/limits")
    assert names(text) == ["api stripe", "tenant 7"]
    stripe, tenant = (cells(each) for each in rows(text))
    assert stripe[:3] == ["2 of 2", "none", "2"]
    assert tenant[:3] == ["0 of any number", "5/min", "0"]
    first = get(pages, "/limits", size=1)
    assert "after_dimension=api&amp;after=stripe" in first
    last = get(pages, "/limits", size=1, after_dimension="api", after="stripe")
    assert names(last) == ["tenant 7"]

    one = get(pages, "/limits", dimension="api", limit="stripe")
    assert "waits for a slot: 2 of 2 out" in one
    assert (set(ids(one)[:2]), ids(one)[2:]) == (set(sent[:2]), sent[2:])
    assert re.findall(r'<a class="header"[^>]*><bdi>(.*?)</bdi>: (\d+)', one) == [
        ("mail", "1"),
        ("orders", "1"),
    ]
    assert "dimension=api&amp;limit=stripe" in get(pages, "/message", queue="orders", id=sent[0])
    get(pages, "/limits", 400, dimension="api")


def test_a_shared_limit_is_paused_and_resumed(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    limit = {"dimension": "api", "limit": "<b>stripe</b>"}
    shared = queue.limits["api", "<b>stripe</b>"]
    shared.set(db, concurrency=2)
    assert "pause-limit" in acting.get("/limits").text
    told = act(acting, "pause-limit", **limit)
    assert told == ("Pause the limit, for which 0 messages wait?", "0 messages waiting.")
    for _ in range(3):
        queue.enqueue(db, b"x", limits={"api": "<b>stripe</b>"})
    assert shared.state(db).waiting == 3
    text = acting.get("/limits").text
    assert "resume-limit" in text
    assert "<b>stripe" not in text

    told = act(acting, "resume-limit", **limit)
    assert told == ("Resume the limit, for which 3 messages wait?", "2 messages let out.")
    assert not shared.state(db).paused
    done = [(each.action, each.queue, dict(each.what)) for each in log(db, space)]
    assert done == [(f"{verb}-limit", "", limit) for verb in ("pause", "resume") for _ in "12"]
    audit = acting.get("/audit").text
    assert "&lt;b&gt;stripe" in audit
    assert "/queue?" not in audit
    bad = {"action": "pause-limit", "queue": "orders"}
    assert acting.get("/ask", params=bad).status_code == 400
