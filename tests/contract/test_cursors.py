"""Cursors under attack: every interleaving that could hide a message, held open by hand.

Transactions are opened, paused and committed one by one, so each test is one fixed interleaving.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, Subscription
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from tests.flaky import FlakyDatabase
from tests.schemes import forced

Database = fdb.Database
Subspace = fdb.Subspace
Take = Callable[[fdb.Database | fdb.Transaction], list[str]]

NOT_COMMITTED = 1020


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(db: Database, space: Subspace, clock: ManualClock) -> Queue:
    return Queue.create(db, "orders", root=space, levels=2, lease=60, clock=clock)


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


@pytest.mark.promise(7)
def test_an_enqueue_that_commits_late_under_a_passed_index_must_take_another(
    db: Database, queue: Queue, take: Take
) -> None:
    paused = db.create_transaction()
    put(paused, queue, "eu-late")
    put(db, queue, "us1", "eu1", "us2")
    assert take(db) == ["eu1"]
    assert take(db) == [], "now us2 is passed too"
    assert conflicts(paused), "it chose index 1, which is behind the cursor"
    put(db, queue, "eu-late")
    assert take(db) == ["eu-late"]


def test_an_enqueue_at_the_very_index_that_a_cursor_stands_on_is_seen_or_fails(
    db: Database, queue: Queue, take: Take
) -> None:
    put(db, queue, "us1")
    paused = [db.create_transaction() for _ in range(8)]
    for n, tr in enumerate(paused):
        put(tr, queue, f"eu{n}")
    put(db, queue, "us2")
    assert take(db) == [], "the cursor stands behind index 2, which the paused ones chose"
    assert [conflicts(tr) for tr in paused] == [True] * 8, (
        "before or behind us2, as chance would have it"
    )


def test_an_enqueue_that_commits_between_a_walk_and_its_commit_makes_it_walk_again(
    db: Database, queue: Queue, take: Take
) -> None:
    early = db.create_transaction()
    put(early, queue, "eu-early")
    put(db, queue, "us1", "us2")
    move = db.create_transaction()
    assert take(move) == []
    assert not conflicts(early)
    assert conflicts(move), "it has passed a place where a message has appeared"
    assert take(db) == ["eu-early"]


def test_an_enqueue_that_read_the_queue_before_two_moves_is_not_overlooked(
    db: Database, queue: Queue, take: Take
) -> None:
    paused = db.create_transaction()
    put(paused, queue, "eu-late")
    put(db, queue, "us1")
    assert take(db) == []
    put(db, queue, "us2")
    assert take(db) == []
    assert conflicts(paused)


def test_an_enqueue_that_read_the_passed_index_goes_on(
    db: Database, queue: Queue, take: Take
) -> None:
    put(db, queue, "us1", "us2")
    assert take(db) == []
    paused = db.create_transaction()
    put(paused, queue, "eu1")
    put(db, queue, "us3")
    assert take(db) == []
    other = db.create_transaction()
    put(other, queue, "eu2")
    put(other, queue, "eu9", priority=9)
    assert take(db) == [], "nothing new: the cursors stay"
    assert conflicts(paused), "it chose the index of us3"
    assert not conflicts(other), "only those at exactly the passed indexes pay"
    assert take(db) == ["eu9", "eu2"]


def test_a_move_in_one_level_does_not_disturb_enqueues_of_another(
    db: Database, queue: Queue, take: Take
) -> None:
    paused = db.create_transaction()
    put(paused, queue, "eu9", priority=9)
    put(db, queue, "us1", "us2")
    assert take(db) == []
    assert not conflicts(paused)
    assert take(db) == ["eu9"]


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


def test_an_urgent_message_is_delivered_before_what_the_cursor_points_at(
    db: Database, queue: Queue
) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "us1", "us2", "us3")
    assert use(db, europe) == []
    put(db, queue, "eu1")
    move = db.create_transaction()
    assert use(move, europe) == ["eu1"]
    put(db, queue, "eu9", priority=9)
    assert conflicts(move), "something more urgent has come"
    assert use(db, europe) == ["eu9", "eu1"]


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


# -- what comes back --------------------------------------------------------------------------


def test_a_release_goes_back_behind_every_cursor_at_once(db: Database, queue: Queue) -> None:
    names = ["one", "two", "three"]
    subscriptions = [queue.subscriptions.open(db, name, selector="region = 'eu'") for name in names]
    put(db, queue, "eu1", "us1", "us2")
    delivery = queue.receive(db)
    assert delivery is not None
    assert [use(db, each) for each in subscriptions] == [[], [], []]
    queue.release(db, delivery)
    for each in subscriptions:
        tr = db.create_transaction()
        assert use(tr, each) == ["eu1"], "each of them finds it, whoever is first"


def test_a_release_while_a_cursor_moves_is_seen(db: Database, queue: Queue) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1")
    delivery = queue.receive(db)
    assert delivery is not None
    move = db.create_transaction()
    assert use(move, europe) == []
    queue.release(db, delivery)
    assert conflicts(move), "it would set the cursor behind the message that came back"
    assert use(db, europe) == ["eu1"]


def test_a_release_that_commits_after_a_move_takes_the_cursor_back(
    db: Database, queue: Queue
) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1")
    delivery = queue.receive(db)
    assert delivery is not None
    release = db.create_transaction()
    queue.release(release, delivery)
    assert use(db, europe) == []
    assert not conflicts(release), "a blind BYTE_MIN conflicts with no move"
    assert use(db, europe) == ["eu1"]


def test_releases_out_of_order_leave_the_cursor_at_the_lowest(db: Database, queue: Queue) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1", "eu2", "us2", "eu3", "us3")
    deliveries = europe.receive_many(db, 3)
    assert use(db, europe) == []
    for n in (1, 0, 2):
        queue.release(db, deliveries[n])
    assert use(db, europe) == ["eu1", "eu2", "eu3"]


def test_a_lapse_takes_the_cursors_back(db: Database, queue: Queue, clock: ManualClock) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1")
    assert queue.receive(db) is not None
    assert use(db, europe) == []
    clock.seconds += 61
    assert [message.payload for message in queue.peek(db, 9)] == [b"us1"]
    move = db.create_transaction()
    put(move, queue, "us2")
    assert use(db, europe) == ["eu1"]
    assert not conflicts(move)


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


def test_a_release_leaves_no_cursor_of_a_removed_subscription(db: Database, queue: Queue) -> None:
    queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1")
    delivery = queue.receive(db)
    assert delivery is not None
    release = db.create_transaction()
    queue.release(release, delivery)
    queue.subscriptions.remove(db, "europe")
    assert conflicts(release)


def test_a_handle_of_another_process_learns_of_a_new_subscription(
    db: Database, queue: Queue, space: Subspace
) -> None:
    other = Queue.open(db, "orders", root=space, create=False)
    put(db, queue, "eu1", "us1")
    delivery = other.receive(db)
    assert delivery is not None
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert use(db, europe) == []
    other.release(db, delivery)
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


# -- several consumers of one subscription ----------------------------------------------------


def test_of_two_moves_of_one_subscription_one_succeeds(
    db: Database, queue: Queue, take: Take
) -> None:
    put(db, queue, "us1", "eu1", "us2", "eu2")
    one, other = db.create_transaction(), db.create_transaction()
    assert take(one) == ["eu1", "eu2"]
    assert take(other) == ["eu1", "eu2"]
    assert [conflicts(one), conflicts(other)] == [False, True]
    assert take(db) == []


def test_one_message_is_given_to_one_consumer(db: Database, queue: Queue) -> None:
    put(db, queue, "eu1", "eu2")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    other = queue.subscriptions.open(db, "other", selector="region LIKE 'e%'")
    first, second, third = (db.create_transaction() for _ in range(3))
    assert use(first, europe, 1) == ["eu1"]
    assert use(second, other, 1) == ["eu1"]
    assert queue.dequeue(third) is not None
    assert [conflicts(tr) for tr in (first, second, third)] == [False, True, True]


def test_a_message_whose_time_is_over_is_disposed_of_once(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    queue.enqueue(db, b"", ttl=10)
    names = ["one", "two"]
    subscriptions = [queue.subscriptions.open(db, name, selector="region = 'eu'") for name in names]
    clock.seconds += 11
    one, other = db.create_transaction(), db.create_transaction()
    assert use(one, subscriptions[0]) == []
    assert use(other, subscriptions[1]) == []
    assert [conflicts(one), conflicts(other)] == [False, True]
    assert queue.depth(db).expired == 1


def test_nobody_moves_on_over_what_another_consumer_has_not_taken_after_all(
    db: Database, queue: Queue
) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "eu1", "us1", "eu2")
    one, other = db.create_transaction(), db.create_transaction()
    assert use(one, europe, 1) == ["eu1"]
    one.reset()
    assert use(other, europe, 2) == ["eu1", "eu2"]
    other.reset()
    assert use(db, europe, 1) == ["eu1"]


def test_an_exclusive_subscription_is_given_to_one_of_two(db: Database, queue: Queue) -> None:
    put(db, queue, "eu1", "eu2")
    mine = queue.subscriptions.open(db, "one", exclusive=True)
    yours = queue.subscriptions.open(db, "one")
    one, other = db.create_transaction(), db.create_transaction()
    assert use(one, mine, 1) == ["eu1"]
    assert use(other, yours, 1) == ["eu1"]
    assert [conflicts(one), conflicts(other)] == [False, True]


# -- the end ----------------------------------------------------------------------------------


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


def test_a_subscription_does_not_close_beside_an_arrival_however_often_it_tries(
    db: Database, queue: Queue
) -> None:
    forced(queue, "first")  # A line would be a commit more.
    closing = queue.subscriptions.open(db, "europe", selector="region = 'eu'", auto_close=True)
    arrivals = iter(["us1", "us2", "eu1"])

    def arrive() -> None:
        for text in islice(arrivals, 1):
            put(db, queue, text)

    busy: Any = FlakyDatabase(db, [], before=arrive)
    assert [each.payload for each in closing.receive_many(busy, 9)] == [b"eu1"]
    assert busy.commits == 4


def test_an_effect_of_nothing_being_there_does_not_commit_beside_an_arrival(
    db: Database, queue: Queue
) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    put(db, queue, "us1")
    assert use(db, europe) == []
    look = db.create_transaction()
    assert use(look, europe) == []
    put(db, queue, "eu1")
    look.add_write_conflict_key(b"some effect of the caller")
    assert conflicts(look)
