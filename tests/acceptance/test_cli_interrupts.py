"""Ctrl-C at any moment: never a traceback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq

MOMENTS = ["fdbqueue.cli.terminal", "fdb.directory_impl"]
"""Modules that have just been imported when it is pressed."""
AT_WORK = "fdbqueue.queue.settlement"
"""The last module that every command imports that looks at a queue."""


def interrupted_at(module: str, fdbq: Fdbq, *words: str) -> tuple[int, str]:
    """How a command ends that is interrupted when it has imported a module, and what it says."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", FDBQ, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == module:
                break
        else:
            pytest.fail(f"{module} is not imported")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    return process.returncode, rest


@pytest.mark.parametrize("module", MOMENTS)
def test_an_interrupt_of_the_start_ends_it_without_a_word(
    fdbq: Fdbq, name: str, module: str
) -> None:
    code, rest = interrupted_at(module, fdbq, "receive", name, "--wait", "60")
    told = [line for line in rest.splitlines() if not line.startswith("import time:")]
    assert told in ([], ["fdbq: interrupted"])
    assert code in (-signal.SIGINT, 130)


def test_what_was_half_started_may_fail_to_end_after_an_interrupt() -> None:
    # Given an interrupt that comes when a thread is made that is joined at exit, and not started
    program = """
import atexit, importlib, sys, threading
main = importlib.import_module("fdbqueue.cli.main")

def interrupted(words):
    atexit.register(threading.Thread().join)
    raise KeyboardInterrupt

sys.exit(main.run([], interrupted))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, "fdbq: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("message", "find", "QUEUE", "--json"),
        ("receive", "QUEUE", "--max", "3000", "--json"),
        ("doctor", "QUEUE"),
        ("message", "purge", "QUEUE", "--yes", "--match", "n < 0"),
        ("queue", "history", "QUEUE", "--follow"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_interrupt_of_the_work_is_told_in_one_line(
    db: fdb.Database, fdbq: Fdbq, name: str, arguments: tuple[str, ...]
) -> None:
    queue = Queue(name)
    queue.set_options(db, history_seconds=3600)
    queue.enqueue_many(db, [b"x"] * 500)
    words = [name if each == "QUEUE" else each for each in arguments]
    _, rest = interrupted_at(AT_WORK, fdbq, *words)
    assert "Traceback" not in rest
    told = [line for line in rest.splitlines() if not re.match(r"import time:", line)]
    assert all(not line.startswith(" ") for line in told)
