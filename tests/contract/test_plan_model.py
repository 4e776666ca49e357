"""Plans against a model: whatever runs come and go, a batch stays what it is until it is done."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import Delivery, NewMessage, Queue, verify
from fdbqueue.queue.bulk.planner import Mark, Planner
from fdbqueue.store.binding import fdb

pytestmark = pytest.mark.usefixtures("small_blocks")

Database = fdb.Database
Steps = list[tuple[str, int]]

CONSUMERS = ("one", "two")


class Stream:
    """What a consumer must have: the checkpoint that Spark keeps, and the batch in hand."""

    def __init__(self, db: Database, queue: Queue, consumer: str) -> None:
        self.db, self.queue, self.consumer = db, queue, consumer
        self.run = self.fresh()
        self.done = self.run.begin(db)
        self.hand: tuple[Mark, list[bytes]] | None = None

    def fresh(self) -> Planner:
        return self.queue.plans.planner(self.consumer)

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
        pieces = self.run.pieces(self.db, self.done, end, 2)
        pages = [page for piece in pieces for page in self.run.read(self.db, piece)]
        return [each.envelope.message(each.position).payload for page in pages for each in page]

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
        for _ in self.queue.plans.releasing(self.db, self.consumer):
            pass
        self.hand = None


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ("enqueue", "next", "next", "finish", "finish", "crash", "back", "receive")
            ),
            st.integers(1, 6),
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
    sent = 0

    def receive(count: int) -> list[Delivery]:
        held = queue.receive_many(db, count)
        queue.ack_many(db, held)
        seen.extend(each.payload for each in held)
        return held

    for n, (step, number) in enumerate(steps):
        stream = streams[n % 2]
        match step:
            case "enqueue":
                fresh = [b"%d" % each for each in range(sent, sent + number)]
                queue.enqueue_many(
                    db,
                    [
                        NewMessage(
                            each,
                            priority=3 + n % 4,
                            unique=each.decode() if n % 3 else None,
                            key=ordering(each),
                        )
                        for each in fresh
                    ],
                )
                sent += number
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
    for stream in streams:
        stream.finish(seen, 1)
        stream.run.acknowledge(db, stream.done)
    while receive(10):
        pass
    assert sorted(seen) == sorted(b"%d" % each for each in range(sent))
    for key in "kl":
        of_key = [int(each) for each in seen if ordering(each) == key]
        assert of_key == sorted(of_key)
    depth = queue.depth(db)
    assert (depth.enqueued, depth.done) == (sent, sent)
    result = verify(db, queue)
    assert not result.deviations, result
