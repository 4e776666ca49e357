"""One seed for all that a run of the tests leaves to chance, so that a failure can be had again.

FDBQUEUE_TESTS_SEED is the seed; without it every run has another one. Each test starts with
``random`` seeded from it and from its own name, and hypothesis makes its examples from it. After a
run the command is printed that runs what failed again with the same seed.

What has a seed of its own in its parameters, as chaos and faults have, shows it there; threads are
free to meet as they like.
"""

from __future__ import annotations

import os
import random
import shlex

import pytest
from hypothesis import settings

VARIABLE = "FDBQUEUE_TESTS_SEED"
SEED = os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(10**9)))
"""The processes that pytest starts for the tests inherit it."""
MOST_SHOWN = 30

# By itself hypothesis makes the same examples in every run of continuous integration.
# A busy machine may take its time.
settings.register_profile("tests", deadline=None, derandomize=False)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = SEED


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
