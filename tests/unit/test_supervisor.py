from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from fdbqueue.worker.processes.supervisor import Supervisor
from tests.patience import eventually


def shell(line: str) -> list[str]:
    return ["/bin/sh", "-c", line]


def lines(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def beside(work: Callable[[], None]) -> threading.Thread:
    """Run something beside the supervisor, which needs this thread; then it is told to stop."""

    def run() -> None:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_command_that_cannot_start_ends_the_supervisor_with_its_code() -> None:
    assert Supervisor([shell("exit 3")] * 2, None, print).run() == 3


def test_commands_that_end_by_themselves_end_the_supervisor() -> None:
    assert Supervisor([shell("exit 0")] * 2, None, print).run() == 0


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "log"
    first = f"echo x >> {log}; [ $(wc -l < {log}) -gt 1 ] && exec sleep 60; kill -9 $$"
    helper = beside(lambda: eventually(lambda: lines(log) == 2))
    assert Supervisor([shell(first)], None, told.append).run() == 0
    helper.join()
    assert told == ["a worker process ended with -9; another starts in 1 s"]


def test_a_change_of_a_source_file_starts_anew(tmp_path: Path) -> None:
    told: list[str] = []
    log, source = tmp_path / "log", tmp_path / "shop.py"
    (tmp_path / ".hidden").mkdir()

    def change() -> None:
        eventually(lambda: lines(log) == 1)
        (tmp_path / ".hidden" / "other.py").write_text("")
        source.write_text("1")
        eventually(lambda: lines(log) == 2)

    helper = beside(change)
    command = shell(f"echo x >> {log}; exec sleep 60")
    assert Supervisor([command], tmp_path, told.append).run() == 0
    helper.join()
    assert told == ["source files have changed: starting anew"]
