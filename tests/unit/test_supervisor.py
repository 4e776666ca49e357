from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fdbqueue.schema.consumers import Running, Work
from fdbqueue.worker.health import Systemd
from fdbqueue.worker.processes.membership import Membership
from fdbqueue.worker.processes.supervisor import Supervisor
from tests.patience import eventually


def ends(code: int, place: Membership) -> None:
    sys.exit(code)


def waits(log: Path, place: Membership) -> None:
    """Log that it has started, and wait for a signal."""
    with log.open("a") as file:
        file.write("x\n")
    signal.pause()


def is_killed_at_first(log: Path, place: Membership) -> None:
    if not log.exists():
        log.write_text("x\n")
        os.kill(os.getpid(), signal.SIGKILL)
    waits(log, place)


def ends_as_it_handles(log: Path, place: Membership) -> None:
    if not log.exists():
        log.write_text("x\n")
        one = Running("an-id", None, 1, 0)
        place.tell([Work("orders", "w", "ship", 1, 1, 0, 0, None, (one,))])
        sys.exit(7)
    waits(log, place)


def is_ready(log: Path, place: Membership) -> None:
    place.systemd().tell("READY=1")
    waits(log, place)


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


def test_a_process_that_cannot_start_ends_the_supervisor_with_its_code() -> None:
    assert Supervisor(partial(ends, 3), 2, None, print).run() == 3


def test_processes_that_end_by_themselves_end_the_supervisor() -> None:
    assert Supervisor(partial(ends, 0), 2, None, print).run() == 0


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "log"
    helper = beside(lambda: eventually(lambda: lines(log) == 2))
    assert Supervisor(partial(is_killed_at_first, log), 1, None, told.append).run() == 0
    helper.join()
    assert re.fullmatch(r"worker process \d+ was killed by SIGKILL; another starts in 1 s", told[0])


def test_a_process_that_ends_at_its_first_message_is_replaced(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "log"
    helper = beside(lambda: eventually(lambda: lines(log) == 2))
    assert Supervisor(partial(ends_as_it_handles, log), 1, None, told.append).run() == 0
    helper.join()
    assert re.search(r"ended with 7 as it handled orders an-id \(attempt 1\); another", told[0])


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
    assert Supervisor(partial(waits, log), 1, tmp_path, told.append).run() == 0
    helper.join()
    assert told == ["source files have changed: starting anew"]


def test_a_service_is_ready_once_all_processes_are_and_lives_while_each_does(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    log = tmp_path / "log"
    service = Supervisor(
        partial(is_ready, log), 2, None, print, Systemd(told.append, watchdog=3_600)
    )
    assert service.unready(time.monotonic()) == "0 of 2 processes are ready"

    def look() -> None:
        eventually(lambda: any("READY=1" in notices for notices in told))
        now = time.monotonic()
        assert service.unready(now) is None
        assert service.dead(now) is None
        # When none has told within its time that it lives
        assert service.dead(now + 3_601) == "process 0 gives no sign of life"

    failed: list[BaseException] = []
    helper = beside(partial(noting, failed, look))
    assert service.run() == 0
    helper.join()
    assert failed == []
    assert any("STOPPING=1" in notices for notices in told)


def noting(failed: list[BaseException], work: Callable[[], None]) -> None:
    """Run something in a thread, whose failures would be lost."""
    try:
        work()
    except BaseException as error:
        failed.append(error)
