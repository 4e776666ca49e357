"""The selector language: JMS 2.0, section 3.8."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue import Headers, Message, Selector
from fdbqueue.errors import InvalidSelector
from fdbqueue.values.selector import MAX_DEPTH, MAX_LENGTH

NOW_MS = 61_000
HEADERS: Headers = {
    "region": "eu",
    "quote": "it's",
    "n": 5,
    "big": 2**62,
    "x": 2.5,
    "yes": True,
    "no": False,
    "void": None,
    "content-type": "text/plain",
    "priority": "a header",
    "percent": "100%",
    "lines": "a\nb",
}
MESSAGE = Message(
    id="00-000000000001-0000000000000000",
    payload=b"",
    headers=HEADERS,
    priority=7,
    level=2,
    attempts=1,
    enqueued_at_ms=1_000,
)


def matches(text: str, message: Message = MESSAGE) -> bool:
    return Selector(text).matches(message, NOW_MS)


def outcome(text: str, message: Message = MESSAGE) -> bool | None:
    """The value of a condition in three-valued logic, asked for from outside."""
    if matches(text, message):
        return True
    return False if matches(f"NOT ({text})", message) else None


@pytest.mark.parametrize(
    "text",
    [
        "region = 'eu'",
        "quote = 'it''s'",
        "region <> 'us'",
        "region = 'eu' AND n = 5",
        "region = 'us' OR n = 5",
        "region = 'us' or n = 5 and yes",
        "NOT region = 'us'",
        "not (region = 'us' or n = 6)",
        "yes",
        "yes = TRUE",
        "no = false",
        "TRUE",
        "n >= 5 AND n <= 5 AND n < 5.5 AND n > 4.5",
        "n = 5.0",
        "n = 5L AND n = 0x5 AND n = 05 AND n = 5e0 AND n = .5e1 AND n = 5.f AND n = 5d",
        "n between 5 and 6",
        "n NOT BETWEEN 6 AND 7",
        "n + 1 = 6 AND n - 1 = 4 AND n * 2 = 10 AND n / 2 = 2 AND x / 2 = 1.25",
        "-n / 2 = -2",
        "2 + 3 * n = 17 AND (2 + 3) * n = 25 AND 10 - n - 1 = 4 AND 20 / n / 2 = 2",
        "-n = -5 AND +n = 5 AND - -n = 5",
        "big = 4611686018427387904",
        "big > -9223372036854775808",
        "region IN ('us', 'eu')",
        "n in (4, 5) and n not in (-5, 6.5)",
        "region NOT IN ('us')",
        "region LIKE 'e%' AND region LIKE '_u' AND region LIKE '%' AND region LIKE '%e%u%'",
        "region NOT LIKE 'u%' AND region NOT LIKE 'e' AND region NOT LIKE '_'",
        "percent LIKE '%!%' ESCAPE '!' AND region NOT LIKE '%!%' ESCAPE '!'",
        "lines LIKE 'a%b' AND lines LIKE 'a_b'",
        "void IS NULL AND missing IS NULL AND n IS NOT NULL",
        "priority = 7 AND JMSPriority = 7",
        "attempts = 1 AND JMSDeliveryCount = 1 AND JMSRedelivered",
        "age = 60 AND age BETWEEN 59.5 AND 60.5 AND JMSTimestamp = 1000",
        "id = '00-000000000001-0000000000000000' AND JMSMessageID = id",
        "\"content-type\" LIKE 'text/%'",
        "\"priority\" = 'a header'",
        "android IS NULL AND $x IS NULL AND a.b_c IS NULL AND größe IS NULL",
        "((((((n))))) = 5)",
        "n = 5 AND\n\tx = 2.5",
    ],
)
def test_true_conditions(text: str) -> None:
    assert outcome(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "region = 'us'",
        "FALSE",
        "n = 'eu'",
        "n <> 'eu'",
        "region = 5",
        "yes = 1",
        "region < 5",
        "region >= quote",
        "yes > no",
        "n LIKE '5'",
        "yes IN ('TRUE')",
        "yes IN (1)",
        "region BETWEEN 1 AND 2",
        "region NOT BETWEEN 1 AND 2",
        "region LIKE 'EU'",
        "Region IS NOT NULL",
        "JMSpriority IS NOT NULL",
        "missing = 1 AND n = 6",
    ],
)
def test_false_conditions(text: str) -> None:
    assert outcome(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "missing = 1",
        "missing <> 1",
        "missing = missing",
        "void = 'eu'",
        "missing",
        "region",
        "missing BETWEEN 1 AND 2",
        "missing NOT BETWEEN 1 AND 2",
        "missing IN ('a')",
        "missing NOT IN ('a')",
        "missing LIKE '%'",
        "missing NOT LIKE '%'",
        "missing = 1 AND n = 5",
        "missing = 1 OR n = 6",
        "n / 0 = 1",
        "x / 0 = 1",
        "n / (n - 5) = 1",
        "region + 1 = 2",
        "yes + 1 = 2",
        "-region = 1",
        "big + big > 0",
        "big * 4.0 * missing > 0",
    ],
)
def test_unknown_conditions(text: str) -> None:
    assert outcome(text) is None


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "found the end"),
        ("n =", 3, "found the end, expected"),
        ("(n = 5", 6, r"expected '\)'"),
        ("n = 5 #", 6, "unexpected character '#'"),
        ("n != 5", 2, "unexpected character '!'"),
        ("region = 'eu", 9, "quote is not closed"),
        ("region IN ()", 11, r"found '\)', expected .*a string"),
        ("region IN ('a' 'b')", 15, "','"),
        ("region LIKE n", 12, "found 'n', expected a string"),
        ("region LIKE 'a' ESCAPE 'ab'", 23, "a single character"),
        ("region LIKE 'a!' ESCAPE '!'", 12, "must precede"),
        ("n IS 5", 5, "expected NOT, NULL"),
        ("region = Null", 9, "found 'Null'"),
        ("5", 0, "found a number, expected a condition"),
        ("yes AND 'eu'", 8, "found a string, expected a condition"),
        ("'a' < 'b'", 0, "found a string, expected a number"),
        ("n BETWEEN 'a' AND 'b'", 10, "expected a number"),
        ("5 IN (5)", 0, "expected a name before IN"),
        ("'a' LIKE 'a'", 0, "expected a name before LIKE"),
        ("n = 99999999999999999999", 4, "not an exact number of 64 bits"),
        (f"n = {'9' * 5000}", 4, "not an exact number of 64 bits"),
        ("n = 1e999", 4, "too large"),
        ("NOT " * MAX_DEPTH + "yes", 0, "nests deeper"),
        ("-" * MAX_DEPTH + "n = 5", 0, "nests deeper"),
        ("n = 5" + " " * MAX_LENGTH, MAX_LENGTH, "at most 8,000"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, position: int, problem: str) -> None:
    with pytest.raises(InvalidSelector, match=problem) as caught:
        Selector(text)
    assert caught.value.__dict__["position"] == position
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", [None, 5, b"n = 5", ["n"]])
def test_a_selector_is_text(text: Any) -> None:
    with pytest.raises(InvalidSelector, match="must be a str"):
        Selector(text)


def test_long_chains_are_no_deep_nesting() -> None:
    chain = " OR ".join(f"n={n}" for n in range(899, 0, -1))
    assert matches(chain)
    assert matches("n = 5" + " + 1 - 1" * 900)
    assert matches("(" * 3900 + "n = 5" + ")" * 3900)


def test_a_selector_is_a_value() -> None:
    one, other = Selector("n = 5"), Selector("n = 5")
    assert one == other
    assert len({one, other}) == 1
    assert pickle.loads(pickle.dumps(one)).matches(MESSAGE, 0)
    assert str(one) == "n = 5"


def test_a_hostile_pattern_takes_no_more_than_linear_passes() -> None:
    """With a backtracking match this would take longer than the universe."""
    headers = {"a": "a" * 8_000}
    message = Message("", b"", headers, 4, 5, 0, 0)
    assert not matches("a LIKE '" + "%a" * 60 + "%b'", message)
    assert matches("a LIKE '" + "%a" * 60 + "%'", message)


def test_the_parser_is_loaded_by_the_first_selector_only() -> None:
    script = (
        "import sys, fdbqueue, fdbqueue.queue.queue, fdbqueue.values.selector\n"
        "assert 'lark' not in sys.modules\n"
        "fdbqueue.Selector('a = 1'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- of any form -----------------------------------------------------------------------------


def carrying(given_headers: dict[str, Any]) -> Message:
    return Message("", b"", given_headers, 4, 5, 0, 0)


@given(st.integers(-50, 50), st.integers(-9, 9), st.integers(-9, 9))
def test_shorthands_mean_what_the_specification_says(n: int, low: int, high: int) -> None:
    message = carrying({"n": n})
    for short, long in [
        (f"n BETWEEN {low} AND {high}", f"n >= {low} AND n <= {high}"),
        (f"n NOT BETWEEN {low} AND {high}", f"n < {low} OR n > {high}"),
        (f"n IN ({low}, {high})", f"n = {low} OR n = {high}"),
        (f"n <> {low}", f"NOT n = {low}"),
        (f"n * {low} + {high} = 0", f"n * {low} = -({high})"),
    ]:
        assert outcome(short, message) is outcome(long, message)


def like(pattern: str, text: str) -> bool:
    """LIKE by its definition, without any care for time."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(pattern[1:], text[1:])


@given(st.text("ab%_", max_size=7), st.text("ab", max_size=9))
def test_like_matches_as_defined(pattern: str, text: str) -> None:
    assert matches(f"s LIKE '{pattern}'", carrying({"s": text})) is like(pattern, text)


WORDS = """n region 5 'eu' -7.5 ( ) ( ) , + - * / = <> < >= AND OR NOT BETWEEN IN LIKE ESCAPE IS
NULL TRUE FALSE % ' " age 1e5 #"""


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(WORDS.split()),
            max_size=25,
        ).map(" ".join),
    )
)
def test_any_text_is_a_selector_or_a_clear_error(text: str) -> None:
    try:
        found = Selector(text).matches(MESSAGE, NOW_MS)
    except InvalidSelector as error:
        found = 0 <= error.__dict__["position"] <= len(text)
        expected = {True}
    else:
        expected = {True, False}
    assert found in expected
