"""The checker of tools/chaos finds every kind of violation, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from workload.checker import check
from workload.history import Operation, Recorder, read
from workload.place import BROWSERS

MS = 1_000_000
STATES = ("ready", "delayed", "leased", "dead", "done", "expired", "purged")


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
        rows = [[tag, identity(tag, level), level, attempt, "eu", again] for tag in tags]
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


def phantom(h: History) -> None:
    h.receive(3_500, "z")


def phantom_of_what_was_not_committed(h: History) -> None:
    one = h.enqueue(2_500, "c")
    one.ended, one.what["marked"] = None, True
    h.receive(5_500, "c")


def enqueued_twice(h: History) -> None:
    h.taking_b.result[0][1] = identity("y")


def done_and_dead(h: History) -> None:
    h.final.what.update(final(done=1, dead=(["b", "failed", 8],)))


def settled_twice(h: History) -> None:
    h.settle(7_000, "b")


def effect_twice(h: History) -> None:
    h.effects[1].what["count"] = 2


def effect_lost(h: History) -> None:
    h.operations.remove(h.effects[1])


def delivered_after_its_end(h: History) -> None:
    h.receive(7_000, "b", attempt=2)


def fifo(h: History) -> None:
    h.taking_a.began, h.taking_b.began = h.taking_b.began, h.taking_a.began
    h.taking_a.ended, h.taking_b.ended = h.taking_b.ended, h.taking_a.ended
    h.acking_a.began, h.acking_a.ended = h.acking_b.began, h.acking_b.ended


def silent(
    h: History, began: int, ended: int | None, killed: int | None = None, queue: str = "first"
) -> None:
    """A receive that fails, or is never seen to end, whatever it was given meanwhile."""
    one = h.add(began, "receive", who="p-1.0")
    one.queue = queue
    one.ended = None if ended is None else ended * MS
    one.error = None if ended is None else "StoreFull: there is no room left"
    if killed is not None:
        h.add(killed, "killed", who="nemesis", process="p-1")
    h.operations.sort(key=lambda each: each.began)


def fifo_after_a_call_that_failed(h: History) -> None:
    fifo(h)
    silent(h, 2_500, 2_999)


def fifo_before_a_call_that_failed(h: History) -> None:
    fifo(h)
    silent(h, 3_002, 3_500)


def fifo_a_lease_after_a_kill(h: History) -> None:
    fifo(h)
    silent(h, 500, None, killed=999)


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


def false_empty(h: History) -> None:
    h.receive(2_500)


def early(h: History) -> None:
    h.enqueue(2_500, "d", delay=5)
    h.receive(5_500, "d")


def too_many_attempts(h: History) -> None:
    h.taking_b.result[0][3] = 9


def leased_twice(h: History) -> None:
    h.receive(5_500, "b")


def leased_twice_by_the_drain(h: History) -> None:
    h.receive(3_100, "b")
    h.taking_b.result[0][5] = True
    h.receive(5_500, "b", redelivered=True, drains=True)


def lease_cut_short(h: History) -> None:
    h.receive(5_500, "b", attempt=2)


def attempts_went_back(h: History) -> None:
    h.receive(3_500, "b", attempt=3)


def dead_too_early(h: History) -> None:
    h.final.what.update(final(done=2, dead=(["c", "it failed", 2],)))


def wrong_counter(h: History) -> None:
    h.final.what.update(final(done=1))


def counters_do_not_add_up(h: History) -> None:
    h.final.what.update(final(done=2, enqueued=1))


def audit(h: History) -> None:
    h.store("audit", found=["ready and leased: ..."])


def groups(h: History) -> None:
    h.final.what["groups"] = ["group g1 is running, not complete"]


def attempts_lost(h: History) -> None:
    h.taking_b.result[0][3] = 5


def orphans(h: History) -> None:
    h.final.what["orphans"] = {"REQUEST": 1}


def stuck(h: History) -> None:
    h.store("stuck", depth="ready=1")


def beyond_its_limit(h: History) -> None:
    h.store("limit", key="k", found="3 are out, and 2 may be")


def died(h: History) -> None:
    h.store("died", what="worker: 1")


def illegal_transition(h: History) -> None:
    h.store("events", rows=[["ack", identity("a"), 0, 0]])


def not_the_first(h: History) -> None:
    rows = [["enqueue", identity(tag), 0, 0] for tag in "ab"]
    h.store("events", rows=[*rows, ["lease", identity("b"), 0, 0]])


def taken_without_a_match(h: History) -> None:
    h.taking_b.what["region"] = "us"


def delivered_after_it_was_cancelled(h: History) -> None:
    h.acking_a.name = "cancel"
    h.receive(7_000, "a", attempt=2)


def cancelled_and_dead(h: History) -> None:
    h.acking_a.name = "cancel"
    h.final.what["dead"] = [["a", "no", 1]]


PLANTED: list[tuple[Callable[[History], None], str]] = [
    (lost, "lost"),
    (phantom, "phantom"),
    (phantom_of_what_was_not_committed, "phantom"),
    (enqueued_twice, "enqueued twice"),
    (done_and_dead, "done and dead"),
    (cancelled_and_dead, "done and dead"),
    (settled_twice, "settled twice"),
    (effect_twice, "effect not once"),
    (effect_lost, "effect lost"),
    (delivered_after_its_end, "delivered after its end"),
    (delivered_after_it_was_cancelled, "delivered after its end"),
    (fifo, "fifo"),
    (fifo_after_a_call_that_failed, "fifo"),
    (fifo_before_a_call_that_failed, "fifo"),
    (fifo_a_lease_after_a_kill, "fifo"),
    (fifo_in_one_enqueue, "fifo"),
    (batch_out_of_order, "batch out of order"),
    (priority, "priority"),
    (false_empty, "false empty"),
    (early, "early"),
    (too_many_attempts, "too many attempts"),
    (leased_twice, "leased twice"),
    (leased_twice_by_the_drain, "leased twice"),
    (lease_cut_short, "lease cut short"),
    (attempts_went_back, "attempts went back"),
    (dead_too_early, "dead too early"),
    (wrong_counter, "counter"),
    (counters_do_not_add_up, "counter"),
    (audit, "audit"),
    (groups, "groups"),
    (attempts_lost, "attempts lost"),
    (orphans, "orphans"),
    (stuck, "stuck"),
    (died, "died"),
    (beyond_its_limit, "limits"),
    (illegal_transition, "illegal transition"),
    (not_the_first, "not the first"),
    (taken_without_a_match, "taken without a match"),
]


def test_a_clean_history_shows_no_violation() -> None:
    assert History().kinds() == set()


def test_what_was_cancelled_need_not_be_done() -> None:
    history = History()
    history.acking_a.name = "cancel"
    history.operations.remove(history.effects[0])
    history.final.what.update(final(done=1, purged=1))
    assert history.kinds() == set()


@pytest.mark.parametrize(
    ("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_violation_is_found(plant: Callable[[History], None], kind: str) -> None:
    # Given a history without a violation
    history = History()
    # When one is planted
    plant(history)
    # Then it is found
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


@pytest.mark.parametrize("queue", ["staged", "auto", "filtered"])
def test_order_is_checked_in_every_queue_that_has_one(queue: str) -> None:
    history = History(queue)
    fifo(history)
    assert "fifo" in history.kinds()


def test_an_operation_that_met_a_full_disk_wrote_nothing() -> None:
    # Given a history with an enqueue that there was no room for
    history = History()
    refused = history.enqueue(6_100, "c")
    refused.error, refused.result = "StoreFull: there is no room left", None
    assert history.kinds() == set()
    # When its message is there after all
    history.receive(6_500, "c")
    # Then something was written
    assert "phantom" in history.kinds()


def test_a_paused_queue_may_look_empty() -> None:
    # Given a queue that is paused for a while
    history = History()
    pause = history.add(2_400, "paused")
    pause.ended = 2_600 * MS
    # When somebody finds it empty meanwhile
    false_empty(history)
    # Then that is right
    assert history.kinds() == set()


def test_a_message_that_somebody_who_died_may_have_held_is_no_proof_of_disorder() -> None:
    # Given a first delivery that nobody lived to tell of
    history = History()
    history.taking_a.began, history.taking_a.ended = 5_500 * MS, 5_600 * MS
    history.acking_a.began, history.acking_a.ended = 5_700 * MS, 5_800 * MS
    assert "fifo" in history.kinds()
    # When the message comes back
    history.taking_a.result[0][3] = 2
    # Then nothing is wrong
    assert history.kinds() == set()


def test_a_lease_that_the_clock_of_the_drain_ends_counts_as_expired() -> None:
    # Given a message whose lease expired in a batch, which counts no attempt
    history = History()
    history.receive(3_100, "b")
    history.taking_b.result[0][5] = True
    # When its next lease expires too, at once by the clock of the drain, and counts
    drained = history.receive(5_500, "b", attempt=2, drains=True)
    # Then nothing is wrong
    assert history.kinds() == set()
    # And it would be by a clock that nobody moved
    del drained.what["drains"]
    assert history.kinds() == {"lease cut short"}


def excused(name: str, queue: str | None = None) -> History:
    """A history with disorder, and a call meanwhile that may have held what was passed over."""
    disorder, at, call = EXCUSED[name]
    history = disorder()
    began, ended, killed = call
    silent(
        history,
        at + began,
        None if ended is None else at + ended,
        None if killed is None else at + killed,
        queue or history.queue,
    )
    return history


def planted(plant: Callable[[History], None]) -> Callable[[], History]:
    def disorder() -> History:
        history = History()
        plant(history)
        return history

    return disorder


EXCUSED: dict[str, tuple[Callable[[], History], int, tuple[int, int | None, int | None]]] = {
    f"{kind} {meanwhile}": (disorder, at, call)
    for kind, disorder, at in (
        ("fifo", planted(fifo), 3_000),
        ("fifo in one enqueue", planted(fifo_in_one_enqueue), 6_300),
        ("priority", planted(priority), 5_500),
        ("false empty", planted(false_empty), 2_500),
    )
    for meanwhile, call in (
        ("all the while", (-500, 500, None)),
        ("at the beginning", (-500, 0, None)),
        ("at the end", (1, 500, None)),
        ("a lease after a kill", (-1_500, None, -1_000)),
        ("for nobody knows how long", (-500, None, None)),
    )
}
ORDER = {"fifo", "priority", "false empty", "behind the window"}


@pytest.mark.parametrize("name", EXCUSED)
def test_what_a_call_held_that_failed_or_was_killed_is_no_proof_of_disorder(name: str) -> None:
    # Given messages that are taken in disorder, and meanwhile a call that fails or is killed
    # Then nothing is wrong where that call may have held what was passed over
    assert not excused(name).kinds() & ORDER
    # And it is where the call was about another queue
    assert excused(name, "auto").kinds() & ORDER


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
