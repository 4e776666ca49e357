"""What is new on a page is rendered once for all its viewers, and none of them holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from fdbqueue.errors import OperationTimedOut
from fdbqueue.web import server_sent_events
from fdbqueue.web.server_sent_events import CHANGED, END, MAX_BEHIND, Feed, event
from fdbqueue.web.watcher import Notify, QueueChange, Watcher
from tests.patience import DEADLINE


class Told:
    """A watcher that tells what a test says."""

    def __init__(self) -> None:
        self.followers: list[Notify] = []

    def follow(self, notify: Notify) -> Callable[[], None]:
        self.followers.append(notify)
        return lambda: self.followers.remove(notify)

    def tell(self, *names: str, everything: bool = False) -> None:
        for notify in self.followers:
            notify(QueueChange(frozenset(names), everything))


class Site:
    """A feed, what it rendered, and whether it ended."""

    def __init__(self, queue: str | None = None) -> None:
        self.told = Told()
        self.rendered: list[list[str] | None] = []
        self.failure: Exception | None = None
        self.ended: list[Feed] = []
        self.feed = Feed(cast(Watcher, self.told), self._news, queue, self.ended.append)

    def _news(self, moved: frozenset[str] | None) -> object:
        self.rendered.append(None if moved is None else sorted(moved))
        if self.failure is not None:
            raise self.failure
        return self.rendered[-1]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent_events, "REST_SECONDS", 0.0)


async def got(viewer: asyncio.Queue[bytes]) -> bytes:
    return await asyncio.wait_for(viewer.get(), DEADLINE)


def test_news_is_rendered_once_for_all_viewers() -> None:
    async def given() -> None:
        site = Site()
        viewers = [site.feed.join() for _ in range(3)]
        assert [await got(each) for each in viewers] == [event("rows", None)] * 3
        site.told.tell("orders", "mail")
        assert [await got(each) for each in viewers] == [event("rows", ["mail", "orders"])] * 3
        assert site.rendered == [None, ["mail", "orders"]]

        late = site.feed.join()
        assert await got(late) == event("rows", None)
        assert all(each.empty() for each in viewers)  # which have it already
        site.told.tell(everything=True)
        assert [await got(each) for each in (*viewers, late)] == [CHANGED] * 4
        assert len(site.rendered) == 3

    asyncio.run(given())


def test_a_page_of_a_queue_hears_of_that_queue_alone() -> None:
    async def given() -> None:
        site = Site("orders")
        viewer = site.feed.join()
        assert await got(viewer) == CHANGED
        site.told.tell("mail")
        site.told.tell("orders")
        assert await got(viewer) == CHANGED
        assert viewer.empty()
        assert site.rendered == []

    asyncio.run(given())


def test_a_viewer_that_does_not_read_is_told_to_fetch_the_page() -> None:
    async def given() -> None:
        site = Site()
        slow, quick = site.feed.join(), site.feed.join()
        await got(quick)
        for n in range(MAX_BEHIND):
            site.told.tell(f"queue-{n}")
            assert await got(quick) == event("rows", [f"queue-{n}"])
        assert await got(slow) == CHANGED
        assert slow.empty()

    asyncio.run(given())


def test_the_last_viewer_ends_the_feed() -> None:
    async def given() -> None:
        site = Site()
        one, other = site.feed.join(), site.feed.join()
        await got(one)
        site.feed.leave(one)
        assert site.ended == []
        site.feed.leave(other)
        assert site.ended == [site.feed]
        for _ in range(3):
            await asyncio.sleep(0)
        assert site.told.followers == []

    asyncio.run(given())


def test_a_store_that_fails_ends_the_streams() -> None:
    async def given() -> None:
        site = Site()
        viewer = site.feed.join()
        await got(viewer)
        site.failure = OperationTimedOut(seconds=1)
        site.told.tell("orders")
        assert await got(viewer) == END
        assert site.told.followers == []
        assert site.ended == [site.feed]

    asyncio.run(given())
