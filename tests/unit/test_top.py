"""What ``fdbq top`` makes of two looks at the queues."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fdbqueue import Depth, QueueOptions
from fdbqueue.cli.monitor.top import QueuesAt, lines
from fdbqueue.cli.terminal import columns
from fdbqueue.queue.overview import Surveyed


def look(at: float, /, **depths: Depth) -> QueuesAt:
    return QueuesAt(at, {name: seen(depth) for name, depth in depths.items()}, {}, None)


def seen(depth: Depth) -> Surveyed:
    return Surveyed(QueueOptions(), {0: depth})


def test_rates_are_those_between_two_looks() -> None:
    before = look(10.0, mail=Depth(ready=7, enqueued=10, done=3))
    now = look(14.0, mail=Depth(ready=1, enqueued=18, done=17), new=Depth(ready=9, enqueued=9))

    shown = lines(before, now, "store", None)

    assert "in 2.0/s  out 3.5/s" in shown[1]
    new, mail = shown[4:]
    assert mail.split() == ["mail", "1", *"00000", "2.0", "3.5"]
    # A queue that was not there before has no rate yet
    assert new.split() == ["new", "9", *"0000000"]


@given(
    queues=st.dictionaries(
        st.text(min_size=1, max_size=200),
        st.builds(Depth, ready=st.integers(0, 10**12), enqueued=st.integers(0, 10**12)),
        min_size=1,
        max_size=10,
    ),
    width=st.integers(20, 200),
)
@example(queues={"e\u0301" * 60: Depth()}, width=20)
@example(queues={"幅" * 60: Depth()}, width=20)
@example(queues={"\x1b[2Jevil": Depth()}, width=80)
def test_the_table_is_never_too_wide_and_always_printable(
    queues: dict[str, Depth], width: int
) -> None:
    _, _, *table = lines(look(0.0), look(1.0, **queues), "store", width)

    assert all(columns(line) <= width and line.isprintable() for line in table)
