"""What pages say of defaults, limits and states is what the code does."""

from __future__ import annotations

import re

import pytest

from fdbqueue.consumers.receiving import try_receive
from fdbqueue.messages.delivery import scan
from fdbqueue.queue.bulk import producer
from fdbqueue.values import backoff
from fdbqueue.values.options import DEFAULT_ATTEMPTS, DEFAULT_PRIORITY, MAX_PAYLOAD, QueueOptions
from fdbqueue.values.states import State
from tests.docs.test_pages import PAGES

OPTIONS = QueueOptions()
WAITS = {
    name: sum([backoff.seconds(OPTIONS.backoff, n, choose) for n in range(1, DEFAULT_ATTEMPTS)])
    for name, choose in {"least": min, "most": max}.items()
}
FACTS = {
    r"(?:up to|maximum is|tries) ([\d,]+) (?:attempts|times in)": DEFAULT_ATTEMPTS,
    r"waits add up to ([\d,]+) hours at least": int(WAITS["least"] / 3600),
    r"hours at least, ([\d,]+) at most": round(WAITS["most"] / 3600),
    r"`max_deaths` \((\d+)\)": OPTIONS.max_deaths,
    r"[Pp]riorit(?:ies are|y from) 0 to 9, and ([\d,]+) unless": DEFAULT_PRIORITY,
    r"`dedup_window`, ([\d,]+) seconds by default": int(OPTIONS.dedup_window),
    r"the payload of one message: ([\d,]+) bytes": OPTIONS.max_payload,
    r"bytes by default, and at most ([\d,]+)": MAX_PAYLOAD,
    r"`peek` stop at ([\d,]+) bytes": scan.BATCH_BYTES,
    r"A producer holds up to ([\d,]+) messages": producer.PENDING,
    r"plus `prefetch`, is ([\d,]+) messages at most": try_receive.MAX_MESSAGES,
}


@pytest.mark.parametrize(("said", "value"), FACTS.items(), ids=lambda value: str(value)[:30])
def test_each_page_that_says_it_says_what_the_code_does(said: str, value: int) -> None:
    found = {
        f"{page.name}: {each[0]}": int(each[1].replace(",", ""))
        for page in PAGES
        for each in re.finditer(said, " ".join(page.read_text().split()))
    }
    assert found, "no page says it any more: take it out of the list"
    assert {where: number for where, number in found.items() if number != value} == {}


def test_pages_name_each_state_of_a_message() -> None:
    (page,) = [each for each in PAGES if each.name == "guarantees.md"]
    text = page.read_text()
    assert [each.value for each in State if each.value not in text] == []
