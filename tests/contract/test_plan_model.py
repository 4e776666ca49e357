"""Plans against a model: whatever runs come and go, a batch stays what it is until it is done."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, NewMessage, Queue
from fdbqueue.messages.streams import table_scan
from fdbqueue.messages.streams.table_scan import Page
from fdbqueue.queue.streams.planner import Mark, Piece, Planner
from fdbqueue.schema.codec.envelopes import unpack_envelope
from fdbqueue.store.binding import fdb

pytestmark = pytest.mark.usefixtures("small_blocks")

Database = fdb.Database
Steps = list[tuple[str, int]]

CONSUMERS = ("one", "two")


def values(tr: fdb.Transaction, page: Page) -> tuple[list[bytes], int]:
    """Up to three messages of a page."""
    return page.values[:3], min(3, len(page))


class Stream:
    """What a consumer must have: the checkpoint that Spark keeps, and the batch in hand."""

    def __init__(self, db: Database, queue: Queue, consumer: str) -> None:
        self.db, self.queue, self.consumer = db, queue, consumer
        self.run = self.fresh()
        self.done = self.run.begin(db)
        self.hand: tuple[Mark, list[bytes]] | None = None

    def fresh(self) -> Planner:
        return self.queue.streams.plans.planner(self.consumer)

    def next(self, messages: int) -> None:
        """Ask for a batch, again and again the same until it is done."""
        end = self.run.next(self.db, self.done, messages=messages)
        if end == self.done:
            assert self.hand is None
            return
        found = self.read(end)
        if self.hand is not None:
            assert self.hand == (end, found)
        self.hand = end, found

    def read(self, end: Mark) -> list[bytes]:
        """What the batch has, however it is divided and read."""
        found = []
        for parts in (1, 2, 5):
            pieces = self.run.pieces(self.db, self.done, end, parts)
            pages = [page for piece in pieces for page in self.run.read(self.db, piece)]
            read = [each.envelope.message(each.position).payload for page in pages for each in page]
            assert read == [each for piece in pieces for each in self.scan(piece)]
            assert len(read) == sum(piece.messages for piece in pieces)
            found.append(read)
        assert found[0] == found[1] == found[2]
        return found[0]

    def scan(self, piece: Piece) -> list[bytes]:
        """As tasks of Spark read."""
        planned = self.queue._keys.planned
        found: list[bytes] = []
        for claim, first, end in piece.spans:
            within = slice(planned(claim, first), planned(claim, end))
            for page in table_scan.pages(self.db, self.queue._keys, within, values, size=100):
                found += [unpack_envelope(each).payload for each in page]
        return found

    def finish(self, seen: list[bytes], how: int) -> None:
        """The sink has the batch: it is acknowledged now, or when the next one is asked for."""
        if self.hand is None:
            return
        self.done, payloads = self.hand
        self.hand = None
        seen += payloads
        if how % 2:
            self.run.acknowledge(self.db, self.done)

    def give_back(self) -> None:
        """Not what the sink has already: that is acknowledged before."""
        self.run.acknowledge(self.db, self.done)
        self.queue.streams.plans.release(self.db, self.consumer)
        self.hand = None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                (
                    *("enqueue", "next", "next", "finish", "finish", "crash", "back"),
                    *("receive", "bury", "redrive"),
                )
            ),
            st.integers(1, 9),
        ),
        max_size=30,
    )
)
def test_every_message_is_done_once_whatever_runs_come_and_go(db: Database, steps: Steps) -> None:
    queue = Queue.create(db, "model", levels=3)
    try:
        play(db, queue, steps)
    finally:
        queue.delete(db)


def ordering(payload: bytes) -> str | None:
    """Of three messages, one has a key, the next another, and the third none."""
    return (None, "k", "l")[int(payload) % 3]


def play(db: Database, queue: Queue, steps: Steps) -> None:
    streams = [Stream(db, queue, name) for name in CONSUMERS]
    seen: list[bytes] = []
    sent: dict[str, bytes] = {}
    keyed: set[bytes] = set()

    def receive(count: int) -> list[Delivery]:
        held = queue.receive_many(db, count)
        queue.ack(db, held)
        seen.extend(each.payload for each in held)
        return held

    for n, (step, number) in enumerate(steps):
        stream = streams[n % 2]
        match step:
            case "enqueue":
                # Two calls of three with keys; the third makes blocks.
                fresh = [b"%d" % each for each in range(len(sent), len(sent) + number)]
                given = [
                    NewMessage(
                        each,
                        priority=3 + n % 4,
                        unique=each.decode() if n % 3 == 1 else None,
                        key=ordering(each) if n % 3 else None,
                    )
                    for each in fresh
                ]
                sent |= zip(queue.enqueue_many(db, given), fresh, strict=True)
                keyed |= {each for each in fresh if n % 3}
            case "next":
                stream.next(number)
            case "finish":
                stream.finish(seen, number)
            case "crash":
                stream.run = stream.fresh()
            case "back":
                stream.give_back()
            case "receive":
                receive(number)
            case "bury":
                for each in queue.receive_many(db, number):
                    if each.payload in keyed:
                        queue.release(db, each, delay=0)
                    else:
                        queue.reject(db, each, "bad")
            case "redrive":
                queue.retry(db)
    in_hand = [each for stream in streams if stream.hand for each in stream.hand[1]]
    held = {each.delivery.id: each.consumer for each in queue.admin.leases(db)}
    for message_id, payload in sent.items():
        found = queue.get(db, message_id)
        assert (found.consumer if found else "") == held.get(message_id, "")
        assert found is not None or payload in seen
        assert found is None or found.message.payload == payload
        assert payload not in in_hand or message_id in held
    assert not queue.admin.verify(db).deviations
    for stream in streams:
        stream.finish(seen, 1)
        stream.run.acknowledge(db, stream.done)
    queue.retry(db)
    while receive(10):
        pass
    assert sorted(seen) == sorted(sent.values())
    for key in "kl":
        of_key = [int(each) for each in seen if each in keyed and ordering(each) == key]
        assert of_key == sorted(of_key)
    depth = queue.depth(db)
    assert (depth.enqueued, depth.done) == (len(sent), len(sent))
    result = queue.admin.verify(db)
    assert not result.deviations, result
