"""Tables and texts as a terminal shows them."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue.cli.terminal import columns, cut, excerpt, sleep, table, visible
from tests.patience import DEADLINE

texts = st.text(max_size=40).map(visible)


rows_of_three = st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=5)


@given(rows_of_three, st.integers(8, 99))
def test_a_table_is_never_wider_than_there_is_room(rows: list[list[str]], room: int) -> None:
    lines = table(["name", "state", "payload"], rows, room=room)

    assert len(lines) == len(rows) + 2
    assert all(columns(line) <= room for line in lines)


@given(rows_of_three)
def test_a_pipe_gets_everything(rows: list[list[str]]) -> None:
    lines = table(["name", "state", "payload"], rows)

    for row, line in zip(rows, lines[2:], strict=True):
        assert all(text.rstrip() in line for text in row)


@given(texts, st.integers(1, 50))
def test_a_cut_text_is_the_beginning_and_says_that_there_is_more(text: str, room: int) -> None:
    shown = cut(text, room)

    assert columns(shown) <= room
    assert shown == text or (shown.endswith("…") and text.startswith(shown[:-1]))


def test_numbers_stand_to_the_right_and_the_last_column_gives_way_first() -> None:
    rows = [("orders", 7, "x" * 50), ("mail", 1_200, "y")]

    assert table(["queue", "ready", "payload"], rows, room=30) == [
        "queue  ready payload",
        "-" * 30,
        "orders     7 xxxxxxxxxxxxxxxx…",
        "mail   1,200 y",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert columns("注文 orders") == 11
    assert table(["queue", "ready"], [("注文", 1), ("mail", 2)])[2:] == [
        "注文      1",
        "mail      2",
    ]


@given(st.text(max_size=3_000))
def test_an_excerpt_says_how_long_a_payload_is_only_where_something_is_left_out(text: str) -> None:
    payload = text.encode("utf-8", "surrogatepass")

    shown = excerpt(payload)

    assert shown == visible(payload) or shown.endswith(f"… ({len(payload):,} bytes)")
    assert len(visible(payload)) > 2_000 or shown == visible(payload)


def test_what_a_row_is_about_is_cut_last() -> None:
    rows = [("05-000000000001-83ca4e58174f03bb", "connection refused by the bank", "x" * 50)]

    (line,) = table(["id", "why", "payload"], rows, room=80)[2:]

    assert line.startswith("05-000000000001-83ca4e58174f03bb connection")


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need it"
)
def test_a_signal_that_meets_another_thread_ends_a_sleep() -> None:
    handled, noticed = threading.Event(), []
    main = threading.get_ident()

    def handle(number: int, frame: FrameType | None) -> None:
        handled.set()
        raise InterruptedError

    def interrupt() -> None:
        while sys._current_frames()[main].f_code is not sleep.__code__:
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        noticed.append(handled.wait(DEADLINE))

    before = signal.signal(signal.SIGUSR1, handle)
    interrupting = threading.Thread(target=interrupt)
    try:
        interrupting.start()
        with pytest.raises(InterruptedError):
            sleep(60)
    finally:
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
    assert noticed == [True]
