"""What subscriptions promise, one consumer at a time; see test_cursors for those that race."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from fdbqueue import NewMessage, Queue, Subscription, list_queues
from fdbqueue.consumers.consumer_states import ConsumerState
from fdbqueue.consumers.credit import Credit
from fdbqueue.errors import (
    Held,
    InvalidArgument,
    InvalidSelector,
    NotFound,
    OptionsMismatch,
    TransactionTooLarge,
)
from fdbqueue.schema.key_kinds import Kind
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.store.binding import fdb
from fdbqueue.testing import ManualClock
from fdbqueue.worker.consumer import SubscriptionConsumer
from tests.flaky import UNKNOWN_COMMITTED, FlakyDatabase
from tests.patience import DEADLINE, eventually
from tests.taking import take

Database = fdb.Database
Subspace = fdb.Subspace

pytestmark = pytest.mark.queue(max_attempts=3, lease=60)


def flaky(db: Database, plan: Sequence[str | None]) -> Any:
    """A database whose commits fail as planned."""
    return FlakyDatabase(db, plan)


def put(db: Database, queue: Queue, *payloads: str, priority: int = 4) -> list[str]:
    """Messages whose region is the part of the payload before the number."""
    return queue.enqueue_many(
        db,
        [
            NewMessage(text.encode(), priority, {"region": text.rstrip("0123456789")})
            for text in payloads
        ],
    )


def taken(db: Database, subscription: Subscription, limit: int = 100) -> list[str]:
    return [found.payload.decode() for found in subscription.receive_many(db, limit)]


def seen(db: Database, subscription: Subscription, limit: int = 100) -> list[str]:
    return [found.payload.decode() for found in subscription.browse(db, limit)]


def test_a_selector_takes_what_it_matches_in_order_and_leaves_the_rest(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "us1", "eu1", "us2", "eu2")
    put(db, queue, "us9", "eu9", priority=9)
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert taken(db, europe) == ["eu9", "eu1", "eu2"]
    assert [m.payload for m in queue.peek(db, 9)] == [b"us9", b"us1", b"us2"]
    assert queue.depth(db).leased == 3


def test_a_browser_sees_each_message_once_and_leaves_it(db: Database, queue: Queue) -> None:
    put(db, queue, "a1", "a2", "a3")
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    assert seen(db, browser, 2) == ["a1", "a2"]
    put(db, queue, "a4")
    put(db, queue, "b1", priority=9)
    assert seen(db, browser) == ["b1", "a3", "a4"], "an urgent late message is never behind it"
    assert seen(db, browser) == []
    assert queue.depth(db).ready == 5


def test_a_place_is_durable_and_belongs_to_the_name(db: Database, queue: Queue) -> None:
    put(db, queue, "a1", "a2")
    assert seen(db, queue.subscriptions.open(db, "one", mode="browse"), 1) == ["a1"]
    assert seen(db, queue.subscriptions.open(db, "one")) == ["a2"]
    assert seen(db, queue.subscriptions.open(db, "other", mode="browse")) == ["a1", "a2"]
    again = pickle.loads(pickle.dumps(queue.subscriptions.open(db, "other")))
    put(db, queue, "a3")
    assert seen(db, again) == ["a3"]


def test_the_place_moves_on_with_the_callers_transaction(
    db: Database, queue: Queue, space: Subspace
) -> None:
    put(db, queue, "a1")
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    tr = db.create_transaction()
    assert [m.payload for m in browser.browse(tr)] == [b"a1"]
    assert browser.browse(tr) == [], "within the transaction it has moved on"
    del tr
    assert seen(db, browser) == ["a1"], "a transaction that is not committed has seen nothing"


def test_a_plain_look_goes_through_all_messages_and_keeps_no_place(
    db: Database, queue: Queue
) -> None:
    put(db, queue, *(f"a{n}" for n in range(230)))
    put(db, queue, "b1", priority=9)
    everything = ["b1", *(f"a{n}" for n in range(230))]
    for _ in range(2):
        assert [m.payload.decode() for m in queue.browse(db)] == everything
    assert [m.payload.decode() for m in queue.browse(db, levels=[0])] == ["b1"]
    assert [m.payload.decode() for m in queue.browse(db, levels=[5, 0])] == everything
    with pytest.raises(InvalidArgument, match="0 to 9"):
        queue.browse(db, levels=[10])


# -- what comes back --------------------------------------------------------------------------


def test_a_message_that_comes_back_is_delivered_by_every_subscription_that_has_passed_it(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "us1", "eu1", "us2", "eu2", "us3", "eu3")
    one = queue.subscriptions.open(db, "one", selector="region = 'eu'")
    other = queue.subscriptions.open(db, "other", selector="region LIKE 'e%'")
    first, second, third = one.receive_many(db, 3)
    assert taken(db, other) == []
    queue.release(db, second)
    queue.release(db, first)
    assert taken(db, other, 1) == ["eu1"], "a release moves every cursor back"
    queue.release(db, third)
    assert taken(db, one) == ["eu2", "eu3"]


def test_a_selector_over_the_age_finds_a_message_once_it_is_old_enough(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    put(db, queue, "a1", "a2")
    old = queue.subscriptions.open(db, "old", selector="age > 30")
    assert taken(db, old) == []
    clock.seconds += 20
    put(db, queue, "a3")
    assert taken(db, old) == []
    clock.seconds += 20
    assert taken(db, old) == ["a1", "a2"]


def test_a_message_whose_time_is_over_is_given_to_nobody(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    queue.enqueue(db, b"eu1", headers={"region": "eu"}, ttl=10)
    put(db, queue, "eu2")
    clock.seconds += 11
    assert (seen(db, browser), taken(db, europe)) == (["eu2"], ["eu2"])
    assert queue.depth(db).expired == 1


def test_a_paused_queue_gives_nothing_and_closes_no_subscription(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "eu1")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'", auto_close=True)
    browser = queue.subscriptions.open(db, "audit", mode="browse", auto_close=True)
    queue.admin.pause(db)
    assert (taken(db, europe), seen(db, browser)) == ([], ["eu1"]), "looking is no delivery"
    assert seen(db, browser) == []
    queue.admin.resume(db)
    assert taken(db, europe) == ["eu1"]


# -- places -----------------------------------------------------------------------------------


def test_a_subscription_can_begin_now(db: Database, queue: Queue) -> None:
    put(db, queue, "eu1")
    put(db, queue, "eu2", priority=9)
    browser = queue.subscriptions.open(db, "audit", mode="browse", start="now")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'", start="now")
    assert (seen(db, browser), taken(db, europe)) == ([], [])
    put(db, queue, "eu3")
    put(db, queue, "eu4", priority=9)
    assert (seen(db, browser), taken(db, europe)) == (["eu4", "eu3"], ["eu4", "eu3"])


def test_a_subscription_can_seek_back_and_forth(db: Database, queue: Queue) -> None:
    ids = put(db, queue, "a1", "a2", "a3")
    put(db, queue, "u1", priority=9)
    browser = queue.subscriptions.open(db, "audit", mode="browse", start=ids[1])
    assert seen(db, browser) == ["u1", "a2", "a3"]
    browser.seek(db, ids[2])
    assert seen(db, browser) == ["a3"], "an id moves the cursor of its level alone"
    assert browser.positions(db)[5] == 3
    browser.seek(db, ids[2])
    assert browser.positions(db)[5] == 2, "the last that it has passed, and not the next"
    browser.seek(db, "now")
    assert browser.positions(db)[5] == 3
    browser.seek(db, "first")
    assert set(browser.positions(db).values()) == {0}
    assert seen(db, browser, 2) == ["u1", "a1"]
    browser.seek(db, "now")
    assert seen(db, browser) == []


def test_seeking_a_message_that_was_never_there_uses_no_indexes_up(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "a1")
    browser = queue.subscriptions.open(db, "audit", mode="browse")
    browser.seek(db, "05-ffffffffffff-0000000000000000")
    (following,) = put(db, queue, "a2")
    assert int(following.split("-")[1], 16) == 2
    assert seen(db, browser) == ["a2"]


def test_a_changed_selector_looks_at_the_whole_queue_again(db: Database, queue: Queue) -> None:
    put(db, queue, "us1", "eu1", "us2")
    subscription = queue.subscriptions.open(db, "one", selector="region = 'eu'")
    assert taken(db, subscription) == ["eu1"]
    subscription.set_selector(db, "region = 'us'")
    assert taken(db, subscription) == ["us1", "us2"]
    subscription.set_selector(db, None)
    assert taken(db, subscription) == []


def test_passing_goes_on_over_several_transactions(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdbqueue.subscriptions.cursors.MAX_SCANNED", 10)
    put(db, queue, *(f"us{n}" for n in range(35)), "eu1", *(f"us{n}" for n in range(35)))
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    with pytest.raises(TransactionTooLarge, match="with a database"):
        europe.receive(db.create_transaction())
    counted = flaky(db, [])
    assert taken(counted, europe, 1) == ["eu1"]
    assert counted.commits == 4
    assert taken(counted, europe) == []
    counted.commits = 0
    assert taken(counted, europe) == []
    assert counted.commits == 1, "what was passed is not looked at again"
    browser = queue.subscriptions.open(db, "audit", mode="browse", selector="region = 'eu'")
    assert seen(db, browser) == []
    old = queue.subscriptions.open(db, "old", selector="age > 1000 OR region = 'eu'")
    assert taken(db, old) == []


def test_a_few_messages_are_not_worth_a_move(db: Database, queue: Queue) -> None:
    put(db, queue, "us1", "us2")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert taken(db, europe) == []
    assert set(europe.positions(db).values()) == {0}
    put(db, queue, *(f"us{n}" for n in range(20)), "eu1")
    assert taken(db, europe) == ["eu1"]
    assert europe.positions(db)[5] == 3, "those of one call have one index"


# -- exclusive subscriptions ------------------------------------------------------------------


def test_an_exclusive_subscription_serves_one_consumer_until_it_closes(
    db: Database, queue: Queue
) -> None:
    put(db, queue, "a1", "a2", "a3")
    mine = queue.subscriptions.open(db, "one", exclusive=True)
    yours = queue.subscriptions.open(db, "one")
    assert taken(db, mine, 1) == ["a1"]
    with pytest.raises(Held, match="'one'"):
        yours.receive(db)
    yours.close(db)
    assert taken(db, mine, 1) == ["a2"], "closing without holding it takes nothing away"
    mine.close(db)
    assert taken(db, yours, 1) == ["a3"]
    with pytest.raises(Held):
        mine.receive(db)


def test_an_exclusive_subscription_is_taken_over_once_its_holder_is_dead(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    put(db, queue, "a1", "a2", "a3")
    dead = queue.subscriptions.open(db, "one", mode="browse", exclusive=True)
    heir = queue.subscriptions.open(db, "one")
    assert seen(db, dead, 1) == ["a1"]
    clock.wall_only = 3600
    with pytest.raises(Held):
        heir.browse(db)
    clock.wall_only, clock.seconds = 0, 20
    assert seen(db, dead, 1) == ["a2"], "its use prolongs the hold"
    clock.seconds += 20
    with pytest.raises(Held):
        heir.browse(db)
    clock.seconds += 20
    assert seen(db, heir) == ["a3"]
    with pytest.raises(Held):
        dead.browse(db)


# -- the end ----------------------------------------------------------------------------------


def test_an_auto_close_subscription_removes_itself_at_the_end(db: Database, queue: Queue) -> None:
    put(db, queue, "a1", "eu1")
    browser = queue.subscriptions.open(db, "audit", mode="browse", auto_close=True)
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'", auto_close=True)
    assert (seen(db, browser), taken(db, europe)) == (["a1", "eu1"], ["eu1"])
    assert len(queue.subscriptions.list(db)) == 2, "it has not yet seen the end"
    assert (seen(flaky(db, [UNKNOWN_COMMITTED]), browser), taken(db, europe)) == ([], [])
    assert queue.subscriptions.list(db) == []
    with pytest.raises(NotFound, match="'audit'"):
        browser.browse(db)


def test_a_queue_that_deletes_itself_goes_with_its_last_subscription(
    db: Database, space: Subspace
) -> None:
    queue = Queue.create(db, "passing", root=space, auto_delete=60)
    first = queue.subscriptions.open(db, "first")
    last = queue.subscriptions.open(db, "last", auto_close=True)
    queue.enqueue(db, b"a")
    first.remove(db)
    assert list_queues(db, root=space) == ["passing"], "there is another subscription"
    delivery = take(db, last)
    queue.ack(db, delivery)
    assert last.receive(flaky(db, [UNKNOWN_COMMITTED])) is None
    assert list_queues(db, root=space) == []
    assert [kv.key for kv in db.get_range(*_within(space, 1))] == [], "nothing is left of it"


def test_a_queue_with_messages_does_not_delete_itself(db: Database, space: Subspace) -> None:
    queue = Queue.create(db, "passing", root=space, auto_delete=60)
    subscription = queue.subscriptions.open(db, "only")
    queue.enqueue(db, b"a")
    subscription.remove(db)
    assert [m.payload for m in queue.peek(db)] == [b"a"]


def _within(space: Subspace, part: int) -> tuple[bytes, bytes]:
    keys = space.subspace((part,)).range()
    return keys.start, keys.stop


def test_a_removed_subscription_is_gone_for_everybody(db: Database, queue: Queue) -> None:
    subscription = queue.subscriptions.open(db, "one", selector="region = 'eu'")
    queue.subscriptions.remove(db, "one")
    for use in (
        subscription.receive,
        subscription.browse,
        partial(subscription.receive, at_most_once=True),
        subscription.remove,
        subscription.definition,
    ):
        with pytest.raises(NotFound):
            use(db)
    with pytest.raises(NotFound):
        subscription.seek(db, "first")
    with pytest.raises(NotFound):
        queue.subscriptions.open(db, "one", create=False)


# -- opening ----------------------------------------------------------------------------------


def test_what_is_given_must_be_what_is_stored(db: Database, queue: Queue) -> None:
    queue.subscriptions.open(db, "one", mode="browse", selector="a = 1")
    queue.subscriptions.open(db, "one")
    queue.subscriptions.open(
        db, "one", mode="browse", selector="a = 1", exclusive=False, auto_close=False
    )
    for option, value in {
        "mode": "acquire",
        "selector": "a = 2",
        "exclusive": True,
        "auto_close": True,
    }.items():
        with pytest.raises(OptionsMismatch, match=option):
            queue.subscriptions.open(db, "one", **{option: value})  # type: ignore[arg-type]
    (stored,) = queue.subscriptions.list(db)
    assert (stored.name, stored.mode.value, str(stored.selector)) == ("one", "browse", "a = 1")


def test_wrong_arguments_are_refused_before_anything_is_written(db: Database, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="mode"):
        queue.subscriptions.open(db, "one", mode="look")
    with pytest.raises(InvalidSelector):
        queue.subscriptions.open(db, "one", selector="region =")
    with pytest.raises(InvalidArgument):
        queue.subscriptions.open(db, "")
    with pytest.raises(InvalidArgument, match="or a message id"):
        queue.subscriptions.open(db, "one", mode="browse", start="last")
    with pytest.raises(InvalidArgument, match="always starts at"):
        queue.subscriptions.open(db, "one", start="now")
    assert queue.subscriptions.list(db) == []
    one = queue.subscriptions.open(db, "one")
    with pytest.raises(InvalidArgument, match="mode"):
        one.browse(db)
    with pytest.raises(InvalidArgument, match="max_messages"):
        one.receive_many(db, 0)
    with pytest.raises(InvalidArgument, match="database"):
        one.receive(db.create_transaction(), wait=1)
    with pytest.raises(InvalidArgument, match="always starts at"):
        one.seek(db, "now")
    with pytest.raises(InvalidArgument, match="no such level"):
        queue.subscriptions.open(db, "b", mode="browse").seek(
            db, "ee-000000000001-0000000000000000"
        )


# -- waiting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["acquire", "browse"])
def test_waiting_ends_as_soon_as_a_match_arrives(db: Database, queue: Queue, mode: str) -> None:
    subscription = queue.subscriptions.open(db, "europe", mode=mode, selector="region = 'eu'")
    found: list[bytes] = []

    def consume() -> None:
        use = subscription.browse if mode == "browse" else subscription.receive_many
        found.extend(each.payload for each in use(db, 1, wait=60))

    consumer = threading.Thread(target=consume)
    consumer.start()
    put(db, queue, "us1")
    put(db, queue, "eu1")
    consumer.join(DEADLINE)
    assert not consumer.is_alive()
    assert found == [b"eu1"]


def test_waiting_for_nothing_ends_in_time(db: Database, queue: Queue) -> None:
    put(db, queue, "us1")
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    assert europe.receive(db, wait=0.05) is None


# -- verification -----------------------------------------------------------------------------


def test_cursors_that_are_wrong_are_found_and_mended(db: Database, queue: Queue) -> None:
    put(db, queue, "eu1", "us1")
    browser = queue.subscriptions.open(db, "audit", mode="browse", exclusive=True)
    queue.subscriptions.open(db, "ahead", mode="browse", start="now")
    assert seen(db, browser) == ["eu1", "us1"]
    assert queue.admin.verify(db).ok
    keys = queue._keys
    del db[keys.subscription("audit")]
    del db[keys.tail(5)]
    other = Queue(queue.name, queue._root)
    found = other.admin.repair(db)
    assert {deviation.kind for deviation in found.deviations} == {
        "cursor orphaned",
        "tail behind cursor",
    }
    assert other.admin.verify(db).ok
    (following,) = put(db, other, "eu2")
    assert seen(db, other.subscriptions.open(db, "ahead")) == ["eu2"], following


def rows(db: Database, queue: Queue, kind: Kind) -> int:
    within = queue._keys.kind(kind)
    return len(list(db.get_range(within.start, within.stop)))


def test_calls_that_wait_are_listed_and_leave_nothing_behind(db: Database, queue: Queue) -> None:
    europe = queue.subscriptions.open(db, "europe", selector="region = 'eu'")
    audit = queue.subscriptions.open(db, "audit", mode="browse")
    threads = [
        threading.Thread(target=europe.receive, args=[db], kwargs={"wait": 60}),
        threading.Thread(target=europe.receive, args=[db], kwargs={"wait": 60}),
        threading.Thread(target=audit.browse, args=[db], kwargs={"wait": 60}),
    ]
    for thread in threads:
        thread.start()

    def listed() -> list[tuple[str, ConsumerState | None, bool]]:
        return sorted((one.subscription, one.state, one.guard) for one in queue.admin.consumers(db))

    sleeps, browses = ConsumerState.INTERESTED, ConsumerState.NON_ACQUIRING
    expected = [("audit", browses, False), ("europe", sleeps, False), ("europe", sleeps, True)]
    eventually(lambda: listed() == expected)
    put(db, queue, "eu1", "eu2", "us1")  # the last one stays for the browser
    for thread in threads:
        thread.join(DEADLINE)
    assert queue.admin.consumers(db) == []
    assert queue.depth(db).leased == 2
    assert rows(db, queue, QueueKeys.guard) == 0


def test_calls_that_wait_end_when_their_subscription_is_removed(db: Database, queue: Queue) -> None:
    ended: list[str] = []

    def wait(subscription: Subscription, browses: bool) -> None:
        with pytest.raises(NotFound):
            (subscription.browse if browses else subscription.receive)(db, wait=600)
        ended.append(subscription.name)

    names = {"acquires": False, "browses": True}
    waiting = [
        (queue.subscriptions.open(db, name, mode="browse" if browses else "acquire"), browses)
        for name, browses in names.items()
        for _ in range(2)
    ]
    threads = [threading.Thread(target=wait, args=each) for each in waiting]
    for thread in threads:
        thread.start()
    eventually(lambda: len(queue.admin.consumers(db)) == 4)
    for name in names:
        queue.subscriptions.remove(db, name)
    for thread in threads:
        thread.join(DEADLINE)
    assert sorted(ended) == ["acquires", "acquires", "browses", "browses"]
    assert queue.admin.consumers(db) == []
    for kind in (QueueKeys.guard, QueueKeys.state, QueueKeys.sleeper, QueueKeys.consumer):
        assert rows(db, queue, kind) == 0
    assert db[queue._keys.changes_of("acquires")] is None


def test_the_holder_of_an_exclusive_subscription_is_listed_while_it_holds(
    db: Database, queue: Queue, clock: ManualClock
) -> None:
    ledger = queue.subscriptions.open(db, "ledger", exclusive=True)
    assert queue.admin.consumers(db) == []
    assert ledger.receive(db) is None
    (holder,) = queue.admin.consumers(db)
    assert (holder.subscription, holder.holder, holder.state) == ("ledger", True, None)
    member = SubscriptionConsumer(db, queue, ledger, "billing", 0, None)
    assert member.fetch(Credit(), 1).deliveries == []
    (holder,) = queue.admin.consumers(db)
    assert (holder.name, holder.holder) == ("billing", True)
    member.leave()
    ledger.close(db)
    assert queue.admin.consumers(db) == []
    assert ledger.receive(db) is None
    clock.seconds += 31
    assert queue.admin.consumers(db) == []
