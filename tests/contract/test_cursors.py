"""Cursors under attack: every interleaving that could hide a message, held open by hand.

Transactions are opened, paused and committed one by one, so each test is one fixed interleaving.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, Subscription
from fdbqueue.store.binding import fdb
from tests.flaky import FlakyDatabase

Database = fdb.Database

pytestmark = pytest.mark.queue(levels=2, lease=60)
Take = Callable[[fdb.Database | fdb.Transaction], list[str]]

NOT_COMMITTED = 1020


@pytest.fixture(autouse=True)
def every_pass_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cursors move for a single message, so that few messages make every interleaving."""
    monkeypatch.setattr("fdbqueue.subscriptions.acquire.MIN_SKIPPED", 1)


@pytest.fixture(params=["acquire", "browse"])
def take(request: pytest.FixtureRequest, db: Database, queue: Queue) -> Take:
    """A subscription of either mode to the messages of region eu, to use as a function."""
    subscription = queue.subscriptions.open(
        db, "europe", mode=request.param, selector="region = 'eu'"
    )
    return lambda tr: use(tr, subscription)


def use(tr: Database | fdb.Transaction, subscription: Subscription, limit: int = 100) -> list[str]:
    if "BROWSE" in str(subscription.definition(tr).mode):
        return [message.payload.decode() for message in subscription.browse(tr, limit)]
    return [delivery.payload.decode() for delivery in subscription.receive_many(tr, limit)]


def put(tr: Database | fdb.Transaction, queue: Queue, *payloads: str, priority: int = 0) -> None:
    queue.enqueue_many(
        tr, [NewMessage(text.encode(), priority, {"region": text[:2]}) for text in payloads]
    )


def conflicts(tr: fdb.Transaction) -> bool:
    """Commit; whether that failed for a conflict."""
    code = None
    try:
        tr.commit().wait()
    except fdb.FDBError as error:
        code = error.code
    assert code in (None, NOT_COMMITTED)
    return code is not None


# -- an enqueue and a move --------------------------------------------------------------------


def test_a_move_in_one_level_does_not_disturb_enqueues_of_another(
    db: Database, queue: Queue, take: Take
) -> None:
    paused = db.create_transaction()
    put(paused, queue, "eu9", priority=9)
    put(db, queue, "us1", "us2")
    assert take(db) == []
    assert not conflicts(paused)
    assert take(db) == ["eu9"]


def test_arrivals_behind_a_browser_do_not_hold_it_up(db: Database, queue: Queue) -> None:
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    put(db, queue, "eu1", "eu2")
    tr = db.create_transaction()
    assert use(tr, browser) == ["eu1", "eu2"]
    put(db, queue, "eu3")
    put(db, queue, "eu9", priority=9)
    assert not conflicts(tr)
    assert use(db, browser) == ["eu9", "eu3"]


@pytest.mark.parametrize(("mode", "commits"), [("acquire", 2), ("browse", 1)])
def test_arrivals_that_do_not_match_hold_no_subscription_up(
    db: Database, queue: Queue, mode: str, commits: int
) -> None:
    europe = queue.subscriptions.open(db, "europe", mode=mode, selector="region = 'eu'")
    put(db, queue, "us1", "eu1")
    busy: Any = FlakyDatabase(db, [], before=lambda: put(db, queue, "us9", priority=9))
    found = europe.browse(busy) if mode == "browse" else europe.receive_many(busy, 9)
    assert [each.payload for each in found] == [b"eu1"]
    assert busy.commits == commits


# -- what is passed is taken meanwhile --------------------------------------------------------


def test_a_move_and_the_consumers_of_what_it_passes_do_not_disturb_each_other(
    db: Database, queue: Queue, take: Take
) -> None:
    put(db, queue, "us1", "us2", "us3", "eu1")
    move = db.create_transaction()
    assert take(move) == ["eu1"]
    assert queue.receive(db, at_most_once=True) is not None
    delivery = queue.receive(db)
    assert delivery is not None
    assert not conflicts(move)
    queue.release(db, delivery)
    assert take(db) == []


def test_two_subscriptions_that_pass_each_others_messages_do_not_conflict(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "us1", "eu1", "us2", "eu2")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    states = queue.subscriptions.open(db, "states", selector="region = 'us'")
    one, other = db.create_transaction(), db.create_transaction()
    assert use(one, europe) == ["eu1", "eu2"]
    assert use(other, states) == ["us1", "us2"]
    assert (conflicts(one), conflicts(other)) == (False, False)


def test_indexes_that_were_passed_and_purged_are_never_used_again(
    db: Database, queue: Queue, take: Take
) -> None:
    put(db, queue, "us1", "us2", "us3")
    assert take(db) == []
    assert queue.purge(db).taken == 3
    put(db, queue, "eu1")
    assert take(db) == ["eu1"]


@pytest.mark.parametrize("to", ["now", "id"])
def test_seeking_forward_leaves_no_message_half_seen(db: Database, queue: Queue, to: str) -> None:
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    paused = db.create_transaction()
    put(paused, queue, "eu-late")
    put(db, queue, "us1", "us2")
    last = queue.peek(db, 2)[1]
    browser.seek(db, to if to == "now" else last.id)
    assert conflicts(paused), "it would have come to stand before the cursor"
    put(db, queue, "eu-late")
    assert use(db, browser) == (["eu-late"] if to == "now" else ["us2", "eu-late"])


def test_a_release_that_does_not_know_of_a_new_subscription_fails(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "eu1", "us1")
    delivery = queue.receive(db)
    assert delivery is not None
    release = db.create_transaction()
    queue.release(release, delivery)
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert use(db, europe) == []
    assert conflicts(release), "it has moved back no cursor of that subscription"
    queue.release(db, delivery)
    assert use(db, europe) == ["eu1"]


def test_a_changed_selector_does_not_lose_to_a_move_under_the_old_one(
    db: Database, queue: Queue
) -> None:
    europe = queue.subscriptions.open(db, "one", selector="region = 'eu'")
    put(db, queue, "us1", "us2")
    move = db.create_transaction()
    assert use(move, europe) == []
    europe.set_selector(db, "region = 'us'")
    assert conflicts(move)
    assert use(db, europe) == ["us1", "us2"]


def test_an_exclusive_subscription_is_given_to_one_of_two(db: Database, queue: Queue) -> None:
    put(db, queue, "eu1", "eu2")
    mine = queue.subscriptions.open(db, "one", exclusive=True)
    yours = queue.subscriptions.open(db, "one")
    one, other = db.create_transaction(), db.create_transaction()
    assert use(one, mine, 1) == ["eu1"]
    assert use(other, yours, 1) == ["eu1"]
    assert [conflicts(one), conflicts(other)] == [False, True]


@pytest.mark.parametrize("priority", [0, 9])
@pytest.mark.parametrize("mode", ["acquire", "browse"])
def test_a_subscription_does_not_close_while_a_message_arrives(
    db: Database, queue: Queue, mode: str, priority: int
) -> None:
    closing = queue.subscriptions.open(
        db, "europe", mode=mode, selector="region = 'eu'", auto_close=True
    )
    put(db, queue, "us1")
    close = db.create_transaction()
    assert use(close, closing) == []
    put(db, queue, "eu1", priority=priority)
    assert conflicts(close), "it has not seen the end"
    assert use(db, closing) == ["eu1"]
