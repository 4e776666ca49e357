"""``fdbq enqueue --resume``: every line once, however the import is interrupted."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
from pathlib import Path

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import FDBQ, Fdbq

LINES = [json.dumps({"payload": f"message {n}", "priority": n % 10}) for n in range(5_000)]
INPUT = "".join(f"{line}\n" for line in LINES)


def payloads(db: fdb.Database, name: str) -> list[str]:
    return sorted(Queue(name).value(message) for message in Queue(name).browse(db))


def enqueued(db: fdb.Database, name: str) -> int:
    return Queue(name).depth(db).enqueued


def killed_midway(fdbq: Fdbq, db: fdb.Database, name: str, state: Path, given: str) -> None:
    """Start an import, and kill it when it has enqueued some of what it is given."""
    before = enqueued(db, name)
    with subprocess.Popen(
        [FDBQ, "enqueue", name, "--resume", str(state)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=fdbq.environment,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(given)
            process.stdin.flush()  # and not closed: there might be more
        while enqueued(db, name) == before:
            assert process.poll() is None, process.stderr.read()
        process.kill()


def test_a_killed_import_that_is_resumed_enqueues_every_line_once(
    db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: Path
) -> None:
    state = tmp_path / "import.state"
    killed_midway(fdbq, db, name, state, "".join(f"{line}\n" for line in LINES[:2_000]))
    killed_midway(fdbq, db, name, state, "".join(f"{line}\n" for line in LINES[:4_000]))
    before = enqueued(db, name)
    assert 0 < before < len(LINES)

    done = fdbq.ok("enqueue", name, "--resume", str(state), "--json", given=INPUT)

    assert done.json == {"queue": name, "enqueued": len(LINES) - before}
    assert payloads(db, name) == sorted(f"message {n}" for n in range(len(LINES)))

    # And what is done stays done
    again = fdbq.ok("enqueue", name, "--resume", str(state), "--json", given=INPUT)
    assert again.json["enqueued"] == 0
    assert "nothing left" in again.err
    # unless there is more
    more = INPUT + '{"payload": "one more"}\n'
    assert fdbq.ok("enqueue", name, "--resume", str(state), "--json", given=more).json == {
        "queue": name,
        "enqueued": 1,
    }


def test_a_wrong_line_is_mended_and_the_import_goes_on(
    db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: Path
) -> None:
    state = str(tmp_path / "import.state")
    broken = [*LINES[:3_000], "broken", *LINES[3_000:]]
    refusal = fdbq.refused("enqueue", name, "--resume", state, given="\n".join(broken), code=2)
    assert refusal.startswith("line 3,001: not JSON")

    fdbq.ok("enqueue", name, "--resume", state, given="\n".join(LINES))

    assert payloads(db, name) == sorted(f"message {n}" for n in range(len(LINES)))


def test_other_input_is_refused(db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: Path) -> None:
    state = tmp_path / "import.state"
    killed_midway(fdbq, db, name, state, '{"payload": "this"}\n')

    for other in ('{"payload": "that"}\n', "", '{"payload": "thi'):
        refusal = fdbq.refused("enqueue", name, "--resume", str(state), given=other, code=2)
        assert "not the input of the import" in refusal

    assert enqueued(db, name) == 1


@pytest.mark.parametrize("text", ["Dear Sir", "{}", '{"queue": "x", "import": 1}', "[]"])
def test_a_file_that_is_no_state_is_left_alone(
    fdbq: Fdbq, name: str, tmp_path: Path, text: str
) -> None:
    state = tmp_path / "letter.txt"
    state.write_text(text)

    refusal = fdbq.refused("enqueue", name, "--resume", str(state), given=INPUT, code=2)

    assert "not a state file of an import" in refusal
    assert state.read_text() == text


def test_a_state_is_for_one_queue_and_one_process(
    db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: Path
) -> None:
    state = tmp_path / "import.state"
    fdbq.ok("enqueue", name, "--resume", str(state), given='{"payload": "x"}')
    with state.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refusal = fdbq.refused("enqueue", name, "--resume", str(state), given=INPUT, code=1)
        assert "another import is using it" in refusal
    fdbq.ok("queue", "create", f"{name}-2")
    refusal = fdbq.refused("enqueue", f"{name}-2", "--resume", str(state), given=INPUT, code=2)
    assert f"belongs to queue '{name}'" in refusal
    fdbq.ok("queue", "delete", f"{name}-2", "--yes")
    assert enqueued(db, name) == 1
