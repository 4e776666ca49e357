"""The index finds the same subscriptions as asking each of them."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbqueue import Message
from fdbqueue.errors import InvalidSelector
from fdbqueue.schema import consumers
from fdbqueue.schema.consumers import Definition, SubscriptionIndex
from fdbqueue.values.selector import Selector

NAMES = st.sampled_from(["region", "amount", '"priority"', "priority"])
CONSTANTS = st.sampled_from(["'eu'", "'us'", "1", "1.0", "0", "TRUE", "FALSE", "'1'"])
VALUES = st.sampled_from(["eu", "us", 1, 1.0, 0, True, False, "1", None, float("nan")])

equal = st.builds("{} = {}".format, NAMES, CONSTANTS)
swapped = st.builds("{} = {}".format, CONSTANTS, NAMES)
other = st.sampled_from(["amount > 0", "region IS NULL", "region <> 'eu'", "age < 10"])
conditions = st.recursive(
    equal | swapped | other,
    lambda parts: st.one_of(
        st.builds("({} AND {})".format, parts, parts),
        st.builds("({} OR {})".format, parts, parts),
        st.builds("NOT ({})".format, parts),
    ),
    max_leaves=4,
)
messages = st.builds(
    lambda headers, priority: Message("id", b"", headers, priority, 0, 0, 0),
    st.dictionaries(st.sampled_from(["region", "amount", "priority"]), VALUES),
    st.integers(0, 9),
)


def definition(n: int, text: str | None) -> Definition:
    return Definition(str(n), selector=None if text is None else valid(text))


def valid(text: str) -> Selector:
    """The selector; another one if its types can never fit."""
    try:
        return Selector(text)
    except InvalidSelector:
        return Selector("TRUE")


@given(st.lists(conditions | st.none(), max_size=8), st.lists(messages, max_size=4))
def test_it_finds_what_asking_each_finds(texts: list[str | None], some: list[Message]) -> None:
    definitions = [definition(n, text) for n, text in enumerate(texts)]
    found = SubscriptionIndex(definitions).wanting(some, 1_000)
    everything = {one.name for one in definitions if one.selector is None}
    asked = {one.name for one in definitions for message in some if one.matches(message, 1_000)}
    assert found == everything | asked


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("region = 'eu'", ["region"]),
        ("'eu' = region", ["region"]),
        ("(priority > 3 AND region = 'eu') AND amount = 1", ["region", "amount"]),
        ('"priority" = 4', ["priority"]),
        ("priority = 4", []),
        ("region = 'eu' OR amount = 1", []),
        ("NOT region = 'eu'", []),
        ("region = other", []),
    ],
)
def test_headers_that_must_have_a_value_are_known(text: str, headers: list[str]) -> None:
    assert [header for header, _, _ in Selector(text).equalities] == headers


def test_what_is_too_much_to_evaluate_counts_as_wanted() -> None:
    definitions = [definition(n, f"amount > {n}") for n in range(5)]
    message = Message("id", b"", {"amount": 2}, 4, 0, 0, 0)
    with mock.patch.object(consumers, "MAX_TESTS", 5):
        index = SubscriptionIndex(definitions)
        assert index.wanting([message], 0) == {"0", "1"}
        assert index.wanting([message, message], 0) == {str(n) for n in range(5)}
