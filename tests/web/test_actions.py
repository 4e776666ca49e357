"""Operators act, after a question, once, with a line in the audit log; nobody else acts."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest
from starlette.testclient import TestClient

from fdbqueue import NewMessage, Queue, Then, fdb
from fdbqueue.errors import OperationTimedOut
from fdbqueue.schema import audit_log
from fdbqueue.schema.keys import RootKeys
from fdbqueue.schema.records import AuditLine
from fdbqueue.web import Role, User, Users, actions, application
from tests import consumers
from tests.patience import eventually
from tests.taking import take

OTTO, VERA = "Bearer of-otto-the-operator", "Bearer of-vera-the-viewer"


@pytest.fixture
def acting(db: fdb.Database, space: fdb.Subspace) -> TestClient:
    """The pages for an operator."""
    users = Users(
        [
            (User("otto", Role.OPERATOR), OTTO.removeprefix("Bearer ")),
            (User("vera", Role.VIEWER), VERA.removeprefix("Bearer ")),
        ]
    )
    app = application(db, root=space, hosts=["testserver"], users=users, allow_actions=True)
    return TestClient(app, headers={"authorization": OTTO})


def log(db: fdb.Database, space: fdb.Subspace) -> list[AuditLine]:
    """The audit log, oldest first."""
    return audit_log.read_newest(db, RootKeys(space), 1_000)[::-1]


def asked(pages: TestClient, action: str, **terms: str) -> tuple[str, dict[str, str]]:
    """The question, and the form below it."""
    answer = pages.get("/ask", params={"action": action, "queue": "orders", **terms})
    assert answer.status_code == 200, answer.text
    question = re.search("<h2>(.*?)</h2>", answer.text)
    assert question is not None
    form = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer.text)
    return question[1], {name: unescape(value) for name, value in form}


def act(pages: TestClient, action: str, **terms: str) -> tuple[str, str]:
    """The question, and what came of it."""
    question, form = asked(pages, action, **terms)
    begun = pages.post("/act", data=form, follow_redirects=False)
    assert begun.status_code == 303, begun.text
    return question, outcome(pages, begun.headers["location"])


def outcome(pages: TestClient, place: str) -> str:
    eventually(lambda: 'data-state="begun"' not in pages.get(place).text)
    shown = re.search(r'<p class="(?:done|failed)"[^>]*>(.*?)</p>', pages.get(place).text, re.S)
    assert shown is not None
    return re.sub("<[^>]+>", "", shown[1])


def bury(db: fdb.Database, queue: Queue[bytes], *reasons: str) -> None:
    for n, reason in enumerate(reasons):
        queue.enqueue(db, b"x", headers={"n": n})
        delivery = take(db, queue)
        queue.reject(db, delivery, reason)


def test_dead_letters_that_a_filter_matches_are_redriven_and_logged(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    bury(db, queue, "timeout", "timeout", "declined")

    told = act(acting, "redrive", reason="time")

    assert told == ("Deliver 2 dead letters again?", "2 dead letters ready again.")
    assert (queue.depth(db).ready, queue.depth(db).dead) == (2, 1)
    begun, done = log(db, space)
    assert (begun.who, begun.action, begun.queue, begun.state, begun.count) == (
        "otto",
        "redrive",
        "orders",
        "begun",
        2,
    )
    assert begun.what == {"reason": "time"}
    assert (done.run, done.state, done.count) == (begun.run, "done", 2)


def test_another_process_shows_what_became_of_a_run(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    bury(db, queue, "timeout", "declined")
    _, form = asked(acting, "redrive")
    place = acting.post("/act", data=form, follow_redirects=False).headers["location"]
    told = outcome(acting, place)
    application_of_another = application(
        db, root=space, hosts=["testserver"], authenticate=lambda _: User("otto", Role.OPERATOR)
    )
    others = TestClient(application_of_another)
    eventually(lambda: len(log(db, space)) == 2)
    assert outcome(others, place) == told == "2 dead letters ready again."
    assert others.get("/run?id=unknown").status_code == 404

    line = AuditLine(1, "otto", "purge", "orders", {}, "of-another", "begun", 12_345)
    audit_log.write(db, RootKeys(space), line)
    text = others.get("/run?id=of-another").text
    assert 'data-state="begun"' in text
    assert "about 12,345 messages" in text
    assert "<progress" not in text
    vera = acting.get("/run?id=of-another", headers={"authorization": VERA})
    assert vera.status_code == 404


@pytest.mark.parametrize(
    ("action", "terms", "told", "left"),
    [
        ("redrive", {}, "3 dead letters ready again.", (5, 1, 0)),
        ("purge-dead", {"selector": "n > 0"}, "2 dead letters removed.", (2, 1, 1)),
        ("move-dead", {"target": "other"}, "3 dead letters moved.", (2, 1, 0)),
        ("move-dead", {"target": "other", "reason": "b"}, "1 dead letter moved.", (2, 1, 2)),
        ("purge", {}, "2 messages removed.", (0, 1, 3)),
        ("purge", {"selector": "n = 10"}, "1 message removed.", (1, 1, 3)),
        ("purge", {"state": "scheduled"}, "1 message removed.", (2, 0, 3)),
        ("retry", {"state": "scheduled"}, "1 message due now.", (3, 0, 3)),
        ("move", {"target": "other", "selector": "n = 10"}, "1 message moved.", (1, 1, 3)),
        ("move", {"target": "other", "state": "scheduled"}, "1 message moved.", (2, 0, 3)),
    ],
)
def test_an_action_does_what_it_says_and_no_more(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    acting: TestClient,
    action: str,
    terms: dict[str, str],
    told: str,
    left: tuple[int, int, int],
) -> None:
    other = Queue.create(db, "other", root=space)
    bury(db, queue, "a", "b", "c")
    queue.enqueue(db, b"x", headers={"n": 10})
    queue.enqueue(db, b"x", headers={"n": 11})
    queue.enqueue(db, b"x", headers={"n": 12}, delay=3_600)

    question, came = act(acting, action, **terms)

    assert came == told
    count = int(told.split()[0])
    assert f" {count} " in question
    depth = queue.depth(db)
    assert (depth.ready, depth.scheduled, depth.dead) == left
    moved = other.depth(db)
    assert moved.ready + moved.scheduled == (count if "move" in action else 0)
    assert [line.count for line in log(db, space)] == [count, count]


def test_what_takes_long_to_be_counted_is_at_least_so_many(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue_many(db, [b"x"] * 300)
    monkeypatch.setattr(actions, "COUNT_SECONDS", 0.0)
    assert asked(acting, "purge", selector="TRUE")[0] == "Remove at least 200 messages?"


def test_one_message_is_cancelled_one_dead_letter_redriven_one_removed_and_one_moved(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    other = Queue.create(db, "other", root=space)
    bury(db, queue, "a", "b", "c", "d")
    first, second, third, fourth = (each.id for each in queue.dead.list(db))
    waiting = queue.enqueue(db, b"x")

    assert act(acting, "cancel", message=waiting)[1] == "1 message removed."
    assert act(acting, "redrive", message=first)[1] == "1 dead letter ready again."
    assert act(acting, "purge-dead", message=second)[1] == "1 dead letter removed."
    told = act(acting, "move-dead", message=third, target="other")
    assert told == ("Move 1 dead letter?", "1 dead letter moved.")
    assert other.depth(db).ready == 1
    assert [each.id for each in queue.dead.list(db)] == [fourth]
    assert act(acting, "cancel", message=waiting)[0] == "Remove 0 messages?"
    assert (queue.depth(db).ready, queue.depth(db).dead) == (1, 1)


def test_a_message_that_is_handled_is_cancelled(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient
) -> None:
    running = queue.enqueue(db, b"x")
    delivery = take(db, queue)
    question, told = act(acting, "cancel-running", message=running)
    assert "1 running message" in question
    assert told == "1 running message cancelled."
    page = acting.get("/message", params={"queue": queue.name, "id": running}).text
    assert "not delivered again" in page
    assert "cancel-running" not in page
    queue.release(db, delivery)
    assert queue.get(db, running) is None
    assert act(acting, "cancel-running", message=running)[0].startswith("Cancel 0 ")


def test_a_queue_is_paused_and_resumed(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient
) -> None:
    queue.enqueue(db, b"x")
    act(acting, "pause")
    assert queue.options(db).paused
    page = acting.get("/queue", params={"queue": queue.name}).text
    assert re.search(r'The queue is paused \(<time class="age".*, by <bdi>\w+</bdi>\)', page)
    act(acting, "resume")
    assert not queue.options(db).paused


def test_a_consumer_is_evicted(db: fdb.Database, queue: Queue[bytes], acting: TestClient) -> None:
    gone = consumers.register(db, queue, "gone")
    consumers.register(db, queue, "stays")
    assert act(acting, "evict", consumer=gone.id.hex())[1] == "1 consumer removed."
    assert [each.name for each in queue.admin.consumers(db)] == ["stays"]


def test_what_fails_is_said_and_logged(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    acting: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue.enqueue(db, b"x")

    def fail(*_: object, **__: object) -> None:
        raise OperationTimedOut(seconds=10.0)

    monkeypatch.setattr(Queue, "purge", fail)
    assert "It failed after 0 messages" in act(acting, "purge")[1]
    _, failed = log(db, space)
    assert failed.state == "failed"
    assert "did not end in time" in failed.what["error"]


def test_schedules_are_paused_resumed_and_run(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    queue.schedules.set(db, "nightly", b"x", every=3600)

    def known() -> tuple[bool, int]:
        found = queue.schedules.get(db, "nightly")
        assert found is not None
        return found.paused, queue.depth(db).ready

    told = act(acting, "pause-schedule", schedule="nightly")
    assert told == ("Pause 1 schedule?", "1 schedule paused.")
    assert known() == (True, 0)
    assert act(acting, "resume-schedule", schedule="nightly")[1] == "1 schedule resumed."
    assert known() == (False, 0)
    assert act(acting, "run-schedule", schedule="nightly")[1] == "1 schedule run."
    assert known() == (False, 1)
    done = [(each.action, each.what["schedule"]) for each in log(db, space) if each.state == "done"]
    names = ("pause-schedule", "resume-schedule", "run-schedule")
    assert done == [(name, "nightly") for name in names]


def test_what_cannot_be_logged_does_not_begin(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enqueue(db, b"x")
    _, form = asked(acting, "purge")

    def fail(*_: object, **__: object) -> None:
        raise OperationTimedOut(seconds=10.0)

    monkeypatch.setattr(audit_log, "write", fail)
    assert acting.post("/act", data=form).status_code == 503
    assert queue.depth(db).ready == 1


def test_a_target_that_is_not_there_is_refused_before_anything_moves(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient
) -> None:
    bury(db, queue, "a")
    for action, terms, status in (
        ("move", {"target": "nowhere"}, 404),
        ("move", {"target": ""}, 400),
        ("move", {"target": "orders"}, 400),
        ("move-dead", {"target": "nowhere"}, 404),
        ("redrive", {"selector": "n >"}, 400),
        ("purge", {"state": "leased"}, 400),
        ("purge", {"reason": "a"}, 400),
        ("explode", {}, 404),
        ("run-schedule", {"schedule": "nowhere"}, 404),
        ("run-schedule", {}, 400),
    ):
        asking = {"action": action, "queue": "orders", **terms}
        assert acting.get("/ask", params=asking).status_code == status, action


def test_only_a_form_of_the_same_user_acts(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes], acting: TestClient
) -> None:
    queue.enqueue(db, b"x")
    _, form = asked(acting, "purge")
    own = acting.cookies["fdbqueue_form"]

    def posted(given: dict[str, str], **headers: str) -> int:
        return acting.post("/act", data=given, headers=headers, follow_redirects=False).status_code

    assert posted({**form, "form": ""}) == 403
    assert posted({**form, "form": "0" * 64}) == 403
    assert posted({**form, "form": "\u20ac"}) == 403
    assert posted({name: form[name] for name in form if name != "form"}) == 403
    assert posted(form, origin="https://evil.example") == 403
    assert posted(form, origin="null") == 403
    assert posted(form, **{"sec-fetch-site": "cross-site"}) == 403
    assert posted(form, **{"sec-fetch-site": "same-site"}) == 403
    assert posted(form, host="evil.example") == 421
    assert posted(form, authorization=VERA) == 403
    assert posted(form, authorization="Bearer wrong") == 401
    acting.cookies.clear()
    assert posted(form) == 403
    assert posted({**form, "more": "x" * 70_000}) == 413
    assert acting.get("/act", params=form).status_code == 405
    assert queue.depth(db).ready == 1
    assert log(db, space) == []

    acting.cookies.clear()
    acting.cookies.set("fdbqueue_form", own)
    assert posted(form, origin="http://testserver") == 303


def test_a_viewer_may_not_act_and_sees_no_action(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient
) -> None:
    message_id = queue.enqueue(db, b"x")
    bury(db, queue, "a")
    queue.schedules.set(db, "nightly", every=3600)
    consumers.register(db, queue, "billing")
    queue.enqueue_many(db, [b"x"], group=Then(b"y", name="load"))
    queue.limits["api", "stripe"].set(db, concurrency=2)
    for path, query in (
        ("/queue", {}),
        ("/dead", {}),
        ("/consumers", {}),
        ("/schedules", {}),
        ("/groups", {}),
        ("/limits", {}),
        ("/message", {"id": message_id}),
    ):
        asking = {"queue": "orders", **query}
        viewer = acting.get(path, params=asking, headers={"authorization": VERA}).text
        assert "/ask" not in viewer
        assert "/ask" in acting.get(path, params=asking).text
    refused = acting.get(
        "/ask", params={"action": "purge", "queue": "orders"}, headers={"authorization": VERA}
    )
    assert refused.status_code == 403


def test_nobody_acts_unless_actions_are_allowed(
    db: fdb.Database, queue: Queue[bytes], pages: TestClient
) -> None:
    queue.enqueue(db, b"x")
    text = pages.get("/queue", params={"queue": "orders"}).text
    assert "/ask" not in text
    form = {"action": "purge", "queue": "orders", "form": "x"}
    assert pages.get("/ask", params=form).status_code == 403
    assert pages.post("/act", data=form).status_code == 403
    assert queue.depth(db).ready == 1


def test_the_audit_log_is_paged_newest_first(
    db: fdb.Database, space: fdb.Subspace, pages: TestClient
) -> None:
    keys = RootKeys(space)
    for n in range(5):
        line = AuditLine(n, f"<b>{n}</b>", "purge", "orders", {"x": "<i>"}, "r", "done", n)
        audit_log.write(db, keys, line)

    first = pages.get("/audit", params={"limit": 2})
    older = re.search(r"before=([0-9a-f]+)", first.text)
    assert older is not None
    second = pages.get("/audit", params={"limit": 2, "before": older[1]})

    shown = [re.findall(r"&lt;b&gt;(\d)&lt;", page.text) for page in (first, second)]
    assert shown == [["4", "3"], ["2", "1"]]


def test_old_lines_of_the_audit_log_go(
    db: fdb.Database, space: fdb.Subspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = RootKeys(space)
    line = AuditLine(0, "otto", "purge", "orders", {}, "old", "done", 1)
    audit_log.write(db, keys, line)
    audit_log.write(db, keys, line)
    assert len(log(db, space)) == 2
    monkeypatch.setattr(audit_log, "KEPT_SECONDS", 0)
    audit_log.write(db, keys, line)
    # The second may have been committed at the very version that the third reads.
    assert len(log(db, space)) <= 2


def test_a_confirmation_is_good_once_in_whatever_process(
    db: fdb.Database, space: fdb.Subspace, queue: Queue[bytes]
) -> None:
    queue.schedules.set(db, "nightly", b"x", every=3_600)
    first, second = (
        TestClient(
            application(
                db, root=space, hosts=["testserver"], allow_actions=True, secret=b"of both" * 5
            )
        )
        for _ in range(2)
    )
    _, form = asked(first, "run-schedule", schedule="nightly")
    second.cookies.update(first.cookies)
    places = {
        pages.post("/act", data=form, follow_redirects=False).headers["location"]
        for pages in (first, second) * 6
    }
    assert len(places) == 1
    assert outcome(first, places.pop()) == "1 schedule run."
    assert queue.depth(db).ready == 1
    assert [line.state for line in log(db, space)] == ["begun", "done"]


@pytest.mark.parametrize("action", ["purge", "move", "purge-dead", "redrive", "move-dead"])
@pytest.mark.parametrize("selector", ["", "n < 100"])
def test_an_action_takes_nothing_that_came_after_its_question(
    db: fdb.Database,
    space: fdb.Subspace,
    queue: Queue[bytes],
    acting: TestClient,
    action: str,
    selector: str,
) -> None:
    Queue.create(db, "other", root=space)

    def come() -> None:
        if action in ("purge", "move"):
            queue.enqueue_many(db, [NewMessage(b"x", headers={"n": n}) for n in range(3)])
        else:
            bury(db, queue, "a", "b", "c")

    come()
    question, form = asked(acting, action, target="other", selector=selector)
    assert " 3 " in question
    moment = int(form["run"][:12], 16)
    eventually(lambda: 1000 * time.time() > moment + 1)
    come()
    begun = acting.post("/act", data=form, follow_redirects=False)
    assert outcome(acting, begun.headers["location"]).startswith("3 ")
    depth = queue.depth(db)
    assert (depth.ready if action in ("purge", "move") else depth.dead) == 3


def test_who_answers_too_late_is_asked_again(
    db: fdb.Database, queue: Queue[bytes], acting: TestClient
) -> None:
    queue.enqueue(db, b"x")
    _, form = asked(acting, "purge")
    queue.enqueue(db, b"x")
    for run in ("", "0" * 32, f"{int(form['run'][:12], 16) - 700_000:012x}{'0' * 20}", "ä" * 32):
        again = acting.post("/act", data={**form, "run": run}, follow_redirects=False)
        assert again.status_code == 409
        assert "Remove 2 messages?" in again.text
    assert queue.depth(db).ready == 2
