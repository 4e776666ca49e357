"""Workers on browsing subscriptions that are killed."""

from __future__ import annotations

from itertools import pairwise

from fdbqueue import Queue, fdb
from tests.acceptance.running import Programs, told
from tests.patience import DEADLINE

MESSAGES, KILLS, LINES = 150, 1, 20


def test_a_killed_browser_is_followed_by_one_that_begins_with_the_message_in_hand(
    db: fdb.Database, space: fdb.Subspace, queue: Queue, programs: Programs
) -> None:
    queue.enqueue_many(db, [b"%d" % n for n in range(MESSAGES)])
    queue.subscriptions.open(db, "audit", mode="browse", auto_close=True)
    seen: list[list[int]] = []
    # When browsers are killed while they hand over messages, and the last one is not
    for n in range(KILLS + 1):
        browser = programs.start("auditor.py", space.key().hex(), queue.name, "audit")
        assert browser.stdout is not None
        seen.append([int(told(browser)) for _ in range(LINES)])
        if n < KILLS:
            browser.kill()
        seen[-1] += map(int, browser.stdout.read().split())
        browser.wait(DEADLINE)
    # Then it ends with the subscription
    assert browser.returncode == 0
    assert queue.subscriptions.list(db) == []
    # And each message was handed over in order, only those in hand at a kill once more
    assert all(each == [*range(each[0], each[-1] + 1)] for each in seen)
    assert all(then[0] - before[-1] in (0, 1) for before, then in pairwise(seen))
    assert (seen[0][0], seen[-1][-1]) == (0, MESSAGES - 1)
    assert queue.depth(db).ready == MESSAGES
