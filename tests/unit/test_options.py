from __future__ import annotations

from typing import Any

import option_tables
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue import QueueOptions
from fdbqueue.errors import InvalidArgument, InvalidOptions
from fdbqueue.values import options
from fdbqueue.values.options import check_name, check_queue_name


def made(flat: dict[str, Any]) -> dict[str, Any]:
    """What is stored of options that are given, and is shown, as the shell does."""
    return QueueOptions.of(options.nested(flat)).flat()


def test_ten_levels_tell_all_jms_priorities_apart() -> None:
    assert [QueueOptions().level(p) for p in range(10)] == list(range(9, -1, -1))


@pytest.mark.parametrize(
    ("levels", "by_priority"),
    [
        (1, [0] * 10),
        (2, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]),
        (3, [2, 2, 2, 2, 1, 0, 0, 0, 0, 0]),
        (4, [3, 3, 3, 3, 2, 1, 0, 0, 0, 0]),
        (5, [4, 4, 4, 3, 2, 1, 0, 0, 0, 0]),
    ],
)
def test_fewer_levels_follow_the_amqp_mapping(levels: int, by_priority: list[int]) -> None:
    assert [QueueOptions(levels=levels).level(p) for p in range(10)] == by_priority


@given(st.integers(1, 256))
def test_the_mapping_keeps_order_and_uses_every_level(levels: int) -> None:
    options = QueueOptions(levels=levels)
    mapped = [options.level(p) for p in range(options.max_priority + 1)]
    assert mapped == sorted(mapped, reverse=True)
    assert set(mapped) == set(range(levels))


@pytest.mark.parametrize("priority", [-1, 10, 1.5, "7", None, True])
def test_a_priority_out_of_range_is_refused(priority: object) -> None:
    with pytest.raises(InvalidArgument, match="from 0 to 9"):
        QueueOptions().level(priority)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"levels": 0},
        {"levels": True},
        {"max_attempts": 0},
        {"lease": "soon"},
        {"lease": float("nan")},
        {"lease": 10**9},
        {"colour": "red"},
    ],
)
def test_an_option_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions, match=next(iter(given))):
        made(given)


@pytest.mark.parametrize("option", options.WHOLE)
def test_a_whole_number_is_within_the_bounds_that_its_meaning_gives(option: str) -> None:
    low, high = options.WHOLE[option]
    said = option_tables.queue_meanings()[option]
    assert f"{low:,} {'or more' if high == options.MAX_BOUND else f'to {high:,}'}" in said
    others = {"keys.window": 1} if option == "keys.weight" else {}  # which it needs
    for number in (low, high):
        assert made({option: number, **others})[option] == number
    wrong: tuple[object, ...] = (low - 1, high + 1, float(low))
    for each in wrong:
        with pytest.raises(InvalidOptions, match=option):
            made({option: each, **others})


@pytest.mark.parametrize("option", options.SECONDS)
def test_seconds_are_within_the_bounds_that_their_meaning_gives(option: str) -> None:
    low, high = options.SECONDS[option]
    assert f"{low:,} to {high:,.0f}" in option_tables.queue_meanings()[option]
    for seconds in (low, high):
        assert made({option: seconds})[option] == seconds
    wrong: tuple[object, ...] = (low - 0.001, high + 1, "soon")
    for each in wrong:
        with pytest.raises(InvalidOptions, match=option):
            made({option: each})


@pytest.mark.parametrize("option", [*options.WHOLE, *options.SECONDS])
def test_an_option_is_none_only_where_that_means_something(option: str) -> None:
    if option in options.OR_NONE:
        assert made({option: None})[option] is None
    else:
        with pytest.raises(InvalidOptions, match=option):
            made({option: None})


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00b", "a\nb", "\x1b[31m", 5, None, b"a"])
def test_a_name_that_is_none_is_refused(name: object) -> None:
    with pytest.raises(InvalidArgument):
        check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "orders\ufe0f",
        "\u3164",
        "or\u034fders",
        "orders\U000e0100",
        " ",
        "orders ",
        "cafe\u0301",
        "\u212bngstrom",
    ],
)
def test_a_queue_has_no_name_that_looks_like_another_or_like_nothing(name: str) -> None:
    assert name.isprintable()
    with pytest.raises(InvalidArgument):
        check_queue_name(name)


@pytest.mark.parametrize(
    "name", ["orders", "my orders", "café", "注文", "заказы", "🦊", "ﬁnance", "=1"]
)
def test_a_queue_may_be_named_in_any_language(name: str) -> None:
    assert check_queue_name(name) == name
