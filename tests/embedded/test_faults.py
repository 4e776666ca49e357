"""Faults from a seed: each kind, what it reports and what it really did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fdbqueue.store.binding import fdb
from fdbqueue.store.embedded import faults


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    faults.stop()


def outcome(db: Any, key: bytes) -> int:
    """The error code of one attempt to set a key after reading it."""
    transaction = db.create_transaction()
    try:
        transaction[key].wait()
        transaction[key] = b"v"
        transaction.commit().wait()
    except fdb.FDBError as error:
        return error.code
    return 0


@pytest.mark.parametrize(
    ("kind", "code", "written"),
    [
        ("conflict", 1020, False),
        ("unknown_lost", 1021, False),
        ("unknown_committed", 1021, True),
        ("too_old", 1007, False),
        ("future_version", 1009, False),
        ("behind", 1037, False),
        ("delay_before", 0, True),
        ("delay_after", 0, True),
    ],
)
def test_each_kind_reports_its_error_and_does_what_it_says(
    db: Any, space: Any, kind: str, code: int, written: bool
) -> None:
    key = space.pack(("key",))
    source = faults.inject(1, {kind: 1.0})

    found = outcome(db, key)

    faults.stop()
    assert found == code
    assert source.counts[kind] >= 1
    assert {injection.kind for injection in source.injected} == {kind}
    assert (db[key] == b"v") == written


def test_the_same_seed_decides_the_same(db: Any, space: Any) -> None:
    def run() -> tuple[list[int], list[faults.Injection]]:
        source = faults.inject(7, {"conflict": 0.3, "unknown_lost": 0.2})
        found = [outcome(db, space.pack((number,))) for number in range(50)]
        return found, source.injected

    assert run() == run()
    assert faults.active is not None
    assert 5 < sum(faults.active.counts.values()) < 45


def test_a_retry_loop_gets_through_all_of_them(db: Any, space: Any) -> None:
    source = faults.inject(3, {kind: 0.1 for kind in faults.KINDS if kind != "kill"})

    @fdb.transactional
    def increment(tr: Any, token: int) -> None:
        if tr[space.pack(("done", token))].present():
            return
        tr[space.pack(("done", token))] = b""
        tr.add(space.pack(("count",)), b"\x01\0\0\0")

    for token in range(30):
        increment(db, token)

    faults.stop()
    assert db[space.pack(("count",))] == (30).to_bytes(4, "little")
    assert sum(source.counts.values()) > 10


def test_faults_are_off_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    faults.from_environment()
    assert faults.active is None

    monkeypatch.setenv(faults.VARIABLE, "5:conflict=0.5,too_old=0.25")
    faults.from_environment()
    assert faults.active is not None
    assert faults.active.seed == 5
    assert faults.active.rates == {"conflict": 0.5, "too_old": 0.25}


def test_one_rate_is_for_every_kind_but_the_deadly_one() -> None:
    source = faults.parse("9:0.01")

    assert source.rates["conflict"] == 0.01
    assert "kill" not in source.rates


@pytest.mark.parametrize(
    "text", ["", "5", "x:0.1", "5:conflict", "5:nonsense=0.1", "5:2", "5:conflict=-1"]
)
def test_a_setting_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        faults.parse(text)
