"""A store whose disk is full: what is wrong is told, and messages can be removed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.acceptance.running import FDBQ, run_anew
from tests.needs import require_small_disks

FILL = """
import os
import fdbqueue
from fdbqueue.store.embedded import StoreFull

db, queue = fdbqueue.open(), fdbqueue.Queue("orders")
for size in (5_000, 50):
    try:
        while True:
            queue.enqueue_many(db, [bytes(size)] * 20)
    except StoreFull:
        continue
print("filled", flush=True)
os._exit(0)  # as a process that is killed: to close the store makes some room
"""
STEPS = """
mount -t tmpfs -o size=64m tmpfs "$DISK"
"$FDBQ" queue create orders
"$PYTHON" -c "$FILL"
"$FDBQ" enqueue orders "$LONG" 2>&1 || echo refused
"$FDBQ" doctor || echo told
"$FDBQ" message purge orders --all --yes
"$FDBQ" enqueue orders "$LONG"
"$FDBQ" doctor orders --full | grep verified
dd if=/dev/zero of="$DISK/other" bs=4k 2>&1 || true
"$FDBQ" doctor || echo told again
"$FDBQ" queue delete orders --yes
"""


def test_a_full_disk_is_told_and_messages_on_it_can_be_removed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    given = {
        **{name: value for name, value in environment.items() if name in ("PATH", "HOME")},
        "DISK": str(tmp_path),
        "FDBQUEUE_STORE": f"embedded:{tmp_path / 'store.fdbq'}",
        "FDBQ": str(FDBQ),
        "PYTHON": sys.executable,
        "FILL": FILL,
        "LONG": "x" * 50_000,
    }
    ended = run_anew([*require_small_disks(), STEPS], {**os.environ, **given})
    assert ended.code == 0, ended
    seen = ended.out
    for part in (
        *("filled", "refused", "problem  disk store: 0.0 GB free", "told", "purged"),
        *("1 queue verified, 1 without findings", "problem  commits store: it takes no commits"),
        *("told again", "deleted"),
    ):
        assert part in seen, ended
        seen = seen.partition(part)[2]
