"""``pytest --promises``: the tests of each guarantee, by their marks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--promises",
        action="store_true",
        help="list the tests of each guarantee of docs/guarantees.md, and run none",
    )


def pytest_report_collectionfinish(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> list[str]:
    """One line for each guarantee and test, whatever parameters the test has."""
    if not config.getoption("promises"):
        return []
    found = {
        (number, item.nodeid.partition("[")[0])
        for item in items
        for mark in item.iter_markers("promise")
        for number in mark.args
    }
    return [f"{number}  {test}" for number, test in sorted(found)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    return True if session.config.getoption("promises") else None
