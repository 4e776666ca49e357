"""The table of keys: what it packs is what the bindings pack, and is parsed back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbqueue.schema import key_kinds
from fdbqueue.schema.key_kinds import KeyTable, KindKeys
from fdbqueue.schema.keys import QueueKeys, RootKeys
from fdbqueue.store.binding import fdb

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
ELEMENTS: dict[type, st.SearchStrategy[object]] = {
    int: st.integers(-(2**63), 2**64 - 2) | st.integers(0, 300) | st.integers(2**64, 2**70),
    str: NAMES,
    bytes: st.binary(max_size=20),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    type(None): st.none(),
    tuple: st.tuples(NAMES, NAMES),
    fdb.tuple.Versionstamp: st.builds(
        fdb.tuple.Versionstamp, st.binary(min_size=10, max_size=10), st.integers(0, 2**16 - 1)
    ),
}
KEYS: list[KeyTable] = [QueueKeys(b"q"), RootKeys(fdb.Subspace(("root",)))]
ROWS = [
    getattr(keys, row.attribute)
    for keys in KEYS
    for row in type(keys).table()
    if isinstance(row, KindKeys)
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.keys}")
@settings(max_examples=20)
@given(data=st.data())
def test_a_key_is_the_tuple_of_its_row(
    row: KindKeys[*tuple[object, ...]], data: st.DataObject
) -> None:
    parts = [st.one_of(*map(ELEMENTS.__getitem__, types)) for _, types in row.parts]
    elements = data.draw(st.tuples(*parts))
    stored = [
        -element if isinstance(element, int) and name.startswith("-") else element
        for element, (name, _) in zip(elements, row.parts, strict=True)
    ]
    key = row(*elements)
    assert key == fdb.tuple.pack(tuple(stored), row.prefix)
    assert row.parse(key) == elements
    assert row.rows.start <= key < row.rows.stop


def test_no_two_rows_have_keys_of_the_same_form() -> None:
    for keys in KEYS:
        forms = [(row.number, row.parts) for row in type(keys).table()]
        assert len(set(forms)) == len(forms)


def test_keys_are_whole_also_where_a_signal_raised_as_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = QueueKeys(b"q")

    def interrupted(number: int) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(key_kinds, "pack_int", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keys.failure("a", 1)
    assert keys.failure("a", 1) == QueueKeys(b"q").failure("a", 1)
