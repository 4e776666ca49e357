"""Whatever threads and processes commit at once, a serial order explains what they saw."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from tests.embedded import histories
from tests.patience import DEADLINE


def test_a_serial_order_explains_what_threads_and_processes_saw(path: str) -> None:
    seed = random.randrange(10**9)
    db: Any = fdb.open(path)
    records = histories.run_processes(path, seed, seconds=6, processes=2, threads=3)
    assert len({record.stamp for record in records}) > 100
    rows = [(bytes(row.key), row.value) for row in db[b"":b"\xff"]]
    everything = ("range", b"", b"\xff", 0, False), rows
    now, version = time.monotonic(), db.create_transaction().get_read_version().wait()
    records.append(histories.Record(now, now, version, None, [everything]))
    assert histories.first_anomaly(records) is None, seed


@pytest.mark.sample(3)
@pytest.mark.parametrize("fault", histories.FAULTS)
def test_no_serial_order_explains_what_a_fault_lets_them_see(tmp_path: Path, fault: str) -> None:
    until = time.monotonic() + DEADLINE
    for number in itertools.count():
        store = str(tmp_path / f"{number}.store")
        records = histories.run_processes(store, number, 1.0, processes=2, threads=3, fault=fault)
        if histories.first_anomaly(records) is not None:
            return
        assert time.monotonic() < until, "it was never found"
