"""Searches: conditions with more names than selectors have, that tell a name that nobody has."""

from __future__ import annotations

from typing import Any

import pytest

from fdbqueue.values.model import Death, Message
from fdbqueue.values.selector.search import Search


def message(payload: bytes = b"", **given: Any) -> Message:
    terms = {"headers": {}, "priority": 4, "level": 5, "attempts": 0, "enqueued_at_ms": 0}
    return Message("05-000000000001-83ca4e58174f03bb", payload, **{**terms, **given})


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("payload.order = 'A-17'", True),
        ("payload.customer.age > 40", True),
        ("payload.customer = 'x'", False),
        ("payload.order.none = 'x'", False),
        ("payload.paid = TRUE", True),
        ("key = 'k' AND error LIKE '%timeout%'", True),
        ("unique IS NULL", True),
        ("reason = 'no stock'", True),
        ("job = 'bill'", True),
        ("id = '05-000000000001-83ca4e58174f03bb'", True),
        ("attempts > 0", False),
    ],
)
def test_a_search_looks_at_all_that_people_know_of_a_message(condition: str, found: bool) -> None:
    one = message(
        b'{"order": "A-17", "customer": {"age": 41}, "paid": true}',
        headers={"job": "bill"},
        key="k",
        last_error="a timeout of 5 s",
        death=Death("no stock", 0, 1, "orders", "05-000000000001-83ca4e58174f03bb"),
    )
    search = Search(condition)
    assert search.matches(one, 0) is found


def test_a_header_comes_before_other_meanings_of_its_name() -> None:
    search = Search("key = 'mine' AND payload.order = 7")
    headers = {"key": "mine", "payload.order": 7}
    assert search.matches(message(b"{}", headers=headers, key="other"), 0)


def test_a_name_that_no_message_has_is_told_with_those_that_they_have() -> None:
    search = Search("regoin = 'eu' OR sku = 7")
    assert not search.matches(message(headers={"region": "eu", "sku": 1}), 0)
    assert search.unknown is not None
    assert "'regoin'" in search.unknown
    assert "region, sku" in search.unknown
    assert search.matches(message(headers={"regoin": "eu"}), 0)
    assert search.unknown is None


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[1]", b"7", b'{"x": {}}', b"[" * 100_000])
def test_payloads_that_have_no_such_field_do_no_harm(payload: bytes) -> None:
    search = Search("payload.x = 1")
    assert not search.matches(message(payload), 0)
    assert search.unknown is not None
    assert "payload" in search.unknown
