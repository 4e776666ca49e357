"""What ``fdbq top`` draws, and what its keys do."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fdbqueue import Depth
from fdbqueue.cli.monitor.top import parse_keys
from fdbqueue.cli.monitor.top_screen import COLUMNS, Controls, Row, Snapshot, draw, short
from fdbqueue.cli.terminal import columns

ROWS = [
    Row("mail", {0: Depth(ready=5)}, rate_in=3.5, oldest_ms=90_000, consumers={"interested": 2}),
    Row("orders", {0: Depth(ready=1, dead=7), 9: Depth(ready=1_234_567)}, paused=True),
    Row("\x1b[2Jevil", {}),
]


def shown(controls: Controls, width: int = 80, height: int = 24) -> list[str]:
    return [line.text for line in draw(controls, Snapshot("store", 0.0, ROWS), width, height, 0.0)]


@given(
    rows=st.lists(
        st.builds(
            Row,
            st.text(min_size=1, max_size=200),
            st.dictionaries(st.integers(0, 255), st.builds(Depth, ready=st.integers(0, 10**12))),
            st.booleans(),
            st.floats(0, 10**9),
            st.floats(0, 10**9),
            st.none() | st.integers(0, 10**12),
        ),
        max_size=40,
    ),
    width=st.integers(20, 200),
    height=st.integers(6, 60),
    keys=st.lists(st.sampled_from(["left", "right", "up", "down", "r", "x"]), max_size=20),
)
@example(rows=[Row("e\u0301" * 60, {})], width=20, height=6, keys=[])
@example(rows=[Row("幅" * 60, {})], width=20, height=20, keys=[])
def test_a_screen_is_always_full_and_never_too_large(
    rows: list[Row], width: int, height: int, keys: list[str]
) -> None:
    controls = Controls()
    snapshot = Snapshot("store", 0.0, rows)
    for key in [*keys, ""]:
        lines = draw(controls, snapshot, width, height, 0.0)
        assert len(lines) == height
        assert all(columns(line.text) <= width and line.text.isprintable() for line in lines)
        controls.press(key, rows)


def test_at_80_columns_every_column_is_there() -> None:
    heading = shown(Controls())[2]
    assert all(column.title in heading for column in COLUMNS)
    assert len(heading) == 80


def test_queues_are_sorted_by_any_column_both_ways() -> None:
    controls = Controls()
    orders = []
    for _ in COLUMNS:
        orders.append(next(row.name for row in controls.ordered(ROWS)))
        controls.press("right", ROWS)
    evil = ROWS[2].name
    by_column = ["orders", evil, evil, "orders", "mail", evil, "mail", "mail", evil]
    assert orders == by_column
    # The first column again, the other way round
    controls.press("r", ROWS)
    assert next(row.name for row in controls.ordered(ROWS)) == evil


def test_the_chosen_queue_is_shown_in_full_and_stays_on_the_screen() -> None:
    rows = [Row(f"queue {n:02}", {0: Depth(ready=100 - n)}) for n in range(50)]
    controls = Controls()
    snapshot = Snapshot("store", 0.0, rows)
    for n in range(50):
        lines = [line.text for line in draw(controls, snapshot, 80, 24, 0.0)]
        assert any(line.startswith(f"queue {n:02} ") for line in lines)
        assert any(line.startswith(f"─ queue {n:02} ") for line in lines)
        controls.press("down", rows)


def test_details_tell_levels_and_consumers() -> None:
    controls = Controls(selected="orders")
    text = "\n".join(shown(controls))
    assert "0:1  9:1.23M" in text
    assert "(paused)" in text
    controls.press("down", ROWS)
    assert "2 interested" in "\n".join(shown(controls))


def test_a_store_that_does_not_answer_is_told() -> None:
    line, *_ = draw(Controls(), Snapshot("store", 0.0, ROWS), 80, 24, 65.0)
    assert "no response for 65 s" in line.text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (2.46, "2.5"),
        (12.3, "12"),
        (999_999, "999,999"),
        (1_234_567, "1.23M"),
        (5e9, "5.00G"),
    ],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text


def test_keys_are_told_apart() -> None:
    assert parse_keys(b"q\x1b[A\x1bOBr") == ["q", "up", "down", "r"]


def test_a_filter_is_typed_and_cleared() -> None:
    rows = [Row("orders", {}), Row("mail", {})]
    controls = Controls()

    for key in ("/", "q", "\x7f", "m", "a", "\r"):
        assert controls.press(key, rows)

    assert [row.name for row in controls.ordered(rows)] == ["mail"]
    lines = draw(controls, Snapshot("store", 0.0, rows), 80, 24, 0.0)
    assert "only *ma*" in lines[-1].text
    controls.press("escape", rows)
    assert len(controls.ordered(rows)) == 2
    controls.press("?", rows)
    assert any(
        "PgDn" in line.text for line in draw(controls, Snapshot("s", 0.0, rows), 80, 24, 0.0)
    )
