"""Damaged files: what is read is what was written, or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fdbqueue.store import embedded
from fdbqueue.store.binding import fdb

_RANDOM = Random(1)
ROWS = {
    b"key/%04d/" % number + _RANDOM.randbytes(6): _RANDOM.randbytes(_RANDOM.choice((10, 100, 3000)))
    for number in range(300)
}
SORTED = sorted(ROWS.items())


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store with the rows."""
    path = str(tmp_path_factory.mktemp("sound") / "a.store")
    db: Any = fdb.open(path)
    tr = db.create_transaction()
    for key, value in ROWS.items():
        tr[key] = value
    tr.commit().wait()
    embedded.close_store(path)
    return Path(path).read_bytes()


def flipped(content: bytes, *bits: int) -> bytes:
    """The same with some other bits."""
    changed = bytearray(content)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def outcome(read: Callable[[], object], written: object) -> str:
    """What comes of a read."""
    try:
        return "right" if read() == written else "wrong"
    except embedded.StoreFileError:
        return "refused"


def rows(db: Any, reverse: bool) -> list[tuple[bytes, bytes]]:
    """All rows, in order."""
    found = [(row.key, row.value) for row in db.get_range(b"key/", b"key0", reverse=reverse)]
    return found[::-1] if reverse else found


def found(db: Any, selector: Any) -> bool:
    """Whether a selector finds a key that was written."""
    return db.get_key(selector) in ROWS


def count(db: Any, begin: bytes, end: bytes) -> int:
    """How many rows a range has."""
    return len(db.get_range(begin, end))


@pytest.mark.sample(15)
@pytest.mark.parametrize("seed", range(40))
def test_a_store_with_flipped_bits_gives_what_was_written_or_an_error(
    path: str, content: bytes, seed: int
) -> None:
    random = Random(seed)
    Path(path).write_bytes(flipped(content, *random.sample(range(8 * len(content)), 8)))
    try:
        db: Any = fdb.open(path)
    except embedded.StoreFileError:
        return
    outcomes: Counter[str] = Counter()
    for key, value in SORTED:
        outcomes[outcome(partial(db.get, key), value)] += 1
        outcomes[outcome(partial(db.get, key + b"x"), None)] += 1
    for reverse in (False, True):
        outcomes[outcome(partial(rows, db, reverse), SORTED)] += 1
    for low, high in random.sample(list(zip(SORTED, SORTED[2:], strict=False)), 50):
        selector = fdb.KeySelector.first_greater_than(low[0])
        outcomes[outcome(partial(found, db, selector), True)] += 1
        outcomes[outcome(partial(count, db, low[0] + b"x", high[0]), 1)] += 1

    assert outcomes["wrong"] == 0
    assert outcomes["refused"] > 0


@pytest.fixture
def damaged(path: str, content: bytes) -> str:
    """A store with one flipped bit in the value of the fifth row."""
    Path(path).write_bytes(flipped(content, 8 * content.index(SORTED[4][1][:10])))
    return path


def test_the_error_for_a_damaged_row_names_the_store_and_what_to_do(damaged: str) -> None:
    db: Any = fdb.open(damaged)
    with pytest.raises(embedded.StoreCorrupt, match=f"put a copy of it in its place: {damaged}"):
        db[SORTED[4][0]]
    assert db[SORTED[5][0]] == SORTED[5][1]


def test_an_atomic_operation_on_a_damaged_row_fails_and_no_other_commit(damaged: str) -> None:
    db: Any = fdb.open(damaged)
    with pytest.raises(embedded.StoreCorrupt):
        db.add(SORTED[4][0], b"\1")
    db.add(SORTED[5][0], b"\0")
    db[SORTED[4][0]] = b"anew"
    assert db[SORTED[4][0]] == b"anew"


def test_all_damages_of_a_store_are_found(damaged: str) -> None:
    assert embedded.damages(damaged) == ["rows that are not what was written: 1"]
    db: Any = fdb.open(damaged)
    db[SORTED[4][0]] = SORTED[4][1]
    assert embedded.damages(damaged) == []


def test_a_process_may_read_without_checks(damaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDBQUEUE_CHECKSUMS", "off")
    db: Any = fdb.open(damaged)
    assert len(db[SORTED[4][0]]) == len(SORTED[4][1])
    assert db[b"nothing"] is None


def test_a_setting_of_checksums_that_means_nothing_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDBQUEUE_CHECKSUMS", "perhaps")
    with pytest.raises(ValueError, match="must be on or off"):
        embedded.open_store(path)
