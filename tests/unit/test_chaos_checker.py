"""The checker of tools/chaos finds every kind of violation, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workload.checker import check
from workload.history import Operation, Recorder, read
from workload.place import BROWSERS

from fdbqueue.values.states import State

MS = 1_000_000
STATES = tuple(state.value for state in State)


class History:
    """A history of one queue, written by hand: two messages that are enqueued and taken in order.

    Every operation takes a millisecond; ``at`` is when it begins.
    """

    def __init__(self, queue: str = "first") -> None:
        self.queue = queue
        self.operations: list[Operation] = []
        self.enqueue(1_000, "a")
        self.enqueue(2_000, "b")
        self.taking_a = self.receive(3_000, "a")
        self.acking_a = self.settle(4_000, "a")
        self.taking_b = self.receive(5_000, "b")
        self.acking_b = self.settle(6_000, "b")
        self.final = self.store("final", **final(done=2))
        self.effects = [self.store("effect of", tag=tag, count=1) for tag in "ab"]

    def add(self, at: int, name: str, result: Any = None, who: str = "x", **what: Any) -> Operation:
        one = Operation(
            who,
            len(self.operations),
            name,
            self.queue,
            at * MS,
            at,
            what,
            at * MS + MS,
            at + 1,
            result,
        )
        self.operations.append(one)
        return one

    def enqueue(self, at: int, tag: str, level: int = 0, delay: float = 0.0) -> Operation:
        row = [tag, level, delay, None, "eu"]
        return self.add(at, "enqueue", [identity(tag, level)], messages=[row])

    def receive(
        self,
        at: int,
        *tags: str,
        level: int = 0,
        attempt: int = 1,
        redelivered: bool = False,
        **what: Any,
    ) -> Operation:
        again = redelivered or attempt > 1
        rows = [[tag, identity(tag, level), level, attempt, "eu", again, 0] for tag in tags]
        return self.add(at, "receive", rows, **what)

    def settle(self, at: int, *tags: str, name: str = "effect") -> Operation:
        return self.add(at, name, tags=list(tags))

    def store(self, name: str, **what: Any) -> Operation:
        return self.add(9_000, name, who="store", **what)

    def kinds(self) -> set[str]:
        return {violation.kind for violation in check(self.operations)}


def identity(tag: str, level: int = 0) -> str:
    return f"{level:02x}-{ord(tag):012x}-00"


def final(dead: tuple[list[Any], ...] = (), **depth: int) -> dict[str, Any]:
    counted = {state: depth.get(state, 0) for state in STATES}
    counted["enqueued"] = depth.get("enqueued", sum(counted.values()))
    return {"depth": counted, "dead": dead, "groups": [], "orphans": {}}


def lost(h: History) -> None:
    h.operations.remove(h.acking_b)
    h.operations.remove(h.effects[1])


def uncommitted(h: History) -> None:
    one = h.enqueue(2_500, "c")
    one.ended, one.what["marked"] = None, True
    h.receive(5_500, "c")


def fifo(h: History) -> None:
    h.taking_a.began, h.taking_b.began = h.taking_b.began, h.taking_a.began
    h.taking_a.ended, h.taking_b.ended = h.taking_b.ended, h.taking_a.ended
    h.acking_a.began, h.acking_a.ended = h.acking_b.began, h.acking_b.ended


def fifo_beside(h: History, began: int, ended: int | None, killed: int | None = None) -> None:
    """Disorder, and a receive elsewhen that fails, or is never seen to end."""
    fifo(h)
    one = h.add(began, "receive", who="p-1.0")
    one.ended = None if ended is None else ended * MS
    one.error = None if ended is None else "StoreFull: there is no room left"
    if killed is not None:
        h.add(killed, "killed", who="nemesis", process="p-1")
    h.operations.sort(key=lambda each: each.began)


def fifo_in_one_enqueue(h: History) -> None:
    rows = [["p", 0, 0.0, None, "eu"], ["q", 0, 0.0, None, "eu"]]
    h.add(6_100, "enqueue", [identity("p"), identity("q")], messages=rows)
    h.receive(6_300, "q")
    h.receive(6_500, "p")


def batch_out_of_order(h: History) -> None:
    h.enqueue(6_100, "p")
    h.enqueue(6_200, "q")
    h.receive(6_500, "q", "p")


def priority(h: History) -> None:
    h.enqueue(2_100, "u", level=0)
    h.enqueue(2_200, "v", level=1)
    h.receive(5_500, "v", level=1)
    h.receive(6_500, "u", level=0)


def early(h: History) -> None:
    h.enqueue(2_500, "d", delay=5)
    h.receive(5_500, "d")


def leased_twice_by_the_drain(h: History) -> None:
    h.receive(3_100, "b")
    h.taking_b.result[0][5] = True
    h.receive(5_500, "b", redelivered=True, drains=True)


def not_the_first(h: History) -> None:
    rows = [["enqueue", identity(tag), 0, 0] for tag in "ab"]
    h.store("events", rows=[*rows, ["lease", identity("b"), 0, 0]])


def cancelled(h: History) -> None:
    h.acking_a.name = "cancel"
    h.receive(7_000, "a", attempt=2)


def cancelled_and_dead(h: History) -> None:
    h.acking_a.name = "cancel"
    h.final.what["dead"] = [["a", "no", 1, 0]]


def ends(h: History, **what: Any) -> None:
    h.final.what.update(what)


PLANTED: list[tuple[str, Callable[[History], object]]] = [
    ("lost", lost),
    ("phantom", lambda h: h.receive(3_500, "z")),
    ("phantom", uncommitted),
    ("enqueued twice", lambda h: h.taking_b.result[0].__setitem__(1, identity("y"))),
    ("done and dead", lambda h: ends(h, **final(done=1, dead=(["b", "failed", 8, 0],)))),
    ("done and dead", cancelled_and_dead),
    ("settled twice", lambda h: h.settle(7_000, "b")),
    ("effect not once", lambda h: h.effects[1].what.update(count=2)),
    ("effect lost", lambda h: h.operations.remove(h.effects[1])),
    ("delivered after its end", lambda h: h.receive(7_000, "b", attempt=2)),
    ("delivered after its end", cancelled),
    ("order", fifo),
    ("order", lambda h: fifo_beside(h, 2_500, 2_999)),
    ("order", lambda h: fifo_beside(h, 3_002, 3_500)),
    ("order", lambda h: fifo_beside(h, 500, None, killed=999)),
    ("order", fifo_in_one_enqueue),
    ("batch out of order", batch_out_of_order),
    ("order", priority),
    ("order", lambda h: h.receive(2_500)),
    ("early", early),
    ("too many attempts", lambda h: h.taking_b.result[0].__setitem__(3, 9)),
    ("too many deaths", lambda h: h.taking_b.result[0].__setitem__(6, 4)),
    ("leased twice", lambda h: h.receive(5_500, "b")),
    ("leased twice", leased_twice_by_the_drain),
    ("lease cut short", lambda h: h.receive(5_500, "b", attempt=2)),
    ("attempts went back", lambda h: h.receive(3_500, "b", attempt=3)),
    ("dead too early", lambda h: ends(h, **final(done=2, dead=(["c", "it failed", 2, 3],)))),
    ("counter", lambda h: ends(h, **final(done=1))),
    ("counter", lambda h: ends(h, **final(done=2, enqueued=1))),
    ("audit", lambda h: h.store("audit", found=["ready and leased: ..."])),
    ("groups", lambda h: ends(h, groups=["group g1 is running, not complete"])),
    ("attempts lost", lambda h: h.taking_b.result[0].__setitem__(3, 2)),
    ("nobody died", lambda h: h.taking_b.result[0].__setitem__(6, 5)),
    ("orphans", lambda h: ends(h, orphans={"REQUEST": 1})),
    ("stuck", lambda h: h.store("stuck", depth="ready=1")),
    ("died", lambda h: h.store("died", what="worker: 1")),
    ("illegal transition", lambda h: h.store("events", rows=[["ack", identity("a"), 0, 0]])),
    ("not the first", not_the_first),
    ("taken without a match", lambda h: h.taking_b.what.update(region="us")),
]


def test_a_clean_history_shows_no_violation() -> None:
    assert History().kinds() == set()


@pytest.mark.parametrize(("kind", "plant"), PLANTED, ids=[kind for kind, _ in PLANTED])
def test_a_planted_violation_is_found(kind: str, plant: Callable[[History], object]) -> None:
    history = History()
    plant(history)
    assert kind in history.kinds()


def browsed(*rows: tuple[str, int, str], queue: str = "watched") -> History:
    """A history whose queue is also browsed; what the browser saw is given."""
    history = History(queue)
    seen = [[tag, identity(tag, level), level, 1, region, False] for tag, level, region in rows]
    history.store("seen", browser="all", rows=seen)
    return history


A, B = ("a", 0, "eu"), ("b", 0, "eu")


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ((A, B), set()),
        ((A,), {"not seen"}),
        ((A, A, B), {"seen twice"}),
        ((B, A), {"seen out of order"}),
        ((A, B, ("z", 0, "eu")), {"phantom"}),
    ],
)
def test_what_a_browser_misses_repeats_or_confuses_is_found(
    rows: tuple[tuple[str, int, str], ...], kinds: set[str]
) -> None:
    assert browsed(*rows).kinds() == kinds


def test_a_browser_with_a_selector_must_see_nothing_else() -> None:
    # Given a browser that is about one region
    history = browsed(A, B)
    assert BROWSERS["eu"]
    # When it sees another one
    rows = [["a", identity("a"), 0, 1, "eu", False], ["b", identity("b"), 0, 1, "us", False]]
    history.store("seen", browser="eu", rows=rows)
    # Then that is found
    assert "seen without a match" in history.kinds()


@pytest.mark.parametrize("queue", ["staged", "auto"])
def test_order_is_checked_in_every_queue_that_has_one(queue: str) -> None:
    history = History(queue)
    fifo(history)
    assert "order" in history.kinds()


def test_a_mark_settles_what_a_killed_process_could_not_tell() -> None:
    # Given an effect of a process that was killed before it had told of it
    history = History()
    history.acking_b.ended, history.acking_b.what["marked"] = None, True
    # When its mark is in the store, it has ended the message
    mark = {"actor": history.acking_b.who, "n": history.acking_b.n, "value": ["b"]}
    history.store("mark", **mark)
    assert history.kinds() == set()
    # And a second end is one too many
    history.settle(7_000, "b")
    assert "settled twice" in history.kinds()


def test_a_history_is_read_as_it_was_written_also_where_its_process_was_killed(
    tmp_path: Path,
) -> None:
    # Given a process that writes down two operations, and lives to see the end of one
    recorder = Recorder(tmp_path / "p.jsonl")
    first = recorder.begin("p", "receive", "q", wait=1)
    recorder.end("p", first, result=[["t"]])
    recorder.begin("p", "ack", "q", tags=["t"])
    # When they are read
    one, two = read(tmp_path.glob("*.jsonl"))
    # Then both are there, with what is known of them
    assert (one.name, one.what, one.result, one.ok) == ("receive", {"wait": 1}, [["t"]], True)
    assert (two.name, two.ended, two.ok) == ("ack", None, False)
    assert "killed before it ended" in str(two)


def test_a_history_that_fills_several_files_is_read_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a process whose files may not become large
    monkeypatch.setattr("workload.history.FILE_BYTES", 300)
    recorder = Recorder(tmp_path / "p.jsonl")
    for n in range(50):
        recorder.end("p", recorder.begin("p", "receive", "q", wait=n), result=[n])
    # Then it has written many, and they are read as one
    found = sorted(tmp_path.glob("*.jsonl"))
    assert len(found) > 10
    assert max(path.stat().st_size for path in found) <= 300
    assert [one.result for one in read(reversed(found))] == [[n] for n in range(50)]
