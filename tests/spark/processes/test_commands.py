"""``fdbq stream`` as a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import Fdbq

pytestmark = pytest.mark.usefixtures("java")


@pytest.mark.slow
def test_a_real_process_loads_a_file_and_tells_a_bad_row_in_one_line(
    db: fdb.Database, environment: dict[str, str], tmp_path: Path
) -> None:
    fdbq = Fdbq(environment)
    flights = tmp_path / "flights.csv"
    flights.write_text("delay\n" + "".join(f"{n}\n" for n in range(10)))
    queue = Queue.create(db, "flights")
    try:
        bad = fdbq("stream", "load", "flights", str(flights), "--priority", "delay + 1")
        assert bad.code == 2
        *_, said = bad.err.splitlines()
        assert said == "fdbq: row 10 of partition 0: priority=10: must be an integer from 0 to 9"
        assert "Traceback" not in bad.err
        assert queue.depth(db).enqueued == 0
    finally:
        queue.delete(db)
