"""One seed for all that a run of the tests leaves to chance, so that a failure can be had again.

FDBQUEUE_TESTS_SEED is the seed; without it every run has another one. Each test starts with
``random`` seeded from it and from its own name, and hypothesis makes its examples from it. After a
run the command is printed that runs what failed again with the same seed.

Of the cases of a test that has the marker ``sample``, each run has that many, chosen from the seed;
with FDBQUEUE_TESTS_EVERY it has all.

What has a seed of its own in its parameters, as chaos and faults have, shows it there; threads are
free to meet as they like.
"""

from __future__ import annotations

import os
import random
import shlex
from collections.abc import Sequence

import pytest
from hypothesis import settings

VARIABLE = "FDBQUEUE_TESTS_SEED"
SEED = os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(10**9)))
"""The processes that pytest starts for the tests inherit it."""
EVERY = bool(os.environ.get("FDBQUEUE_TESTS_EVERY"))
"""Whether to run every case and interleaving."""
MOST_SHOWN = 30

# By itself hypothesis makes the same examples in every run of continuous integration.
# A busy machine may take its time.
settings.register_profile("tests", deadline=None, derandomize=False)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The cases that are not of this run's samples."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for name, found in cases.items():
        marker = found[0].get_closest_marker("sample")
        assert marker is not None
        (count,) = marker.args
        if len(found) > count and not EVERY:
            left.update(random.Random(f"{SEED} {name}").sample(found, len(found) - count))
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(f"{SEED} {item.nodeid}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        *terminalreporter.getreports("failed"),
        *terminalreporter.getreports("error"),
    ]
    failed = {one.nodeid: one for one in reports if isinstance(one, pytest.TestReport)}
    if not failed:
        return
    terminalreporter.section(f"to run again what failed, with the same seed {SEED}")
    for nodeid, report in list(failed.items())[:MOST_SHOWN]:
        slow = " -m slow" if "slow" in report.keywords else ""
        terminalreporter.write_line(f"{VARIABLE}={SEED} tools/test{slow} {shlex.quote(nodeid)}")
    if len(failed) > MOST_SHOWN:
        terminalreporter.write_line(f"and {len(failed) - MOST_SHOWN} more")
