"""Random concurrent transactions against a plain model of strict serializability."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue.store.binding import fdb

KEYS = 6
OPEN = 3
keys = st.integers(0, KEYS - 1)
values = st.sampled_from([b"a", b"bb", b"\x01"])

reads = st.one_of(
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("range"), keys, keys, st.integers(0, 3), st.booleans()),
    st.tuples(st.just("get_key"), keys, st.integers(-2, 3), st.booleans()),
)
writes = st.one_of(
    st.tuples(st.just("set"), keys, values),
    st.tuples(st.just("clear"), keys),
    # An empty range is no write at all, and a transaction without one is not checked.
    st.tuples(st.just("clear_range"), keys, keys).filter(lambda step: step[1] != step[2]),
    st.tuples(st.just("add"), keys),
    st.tuples(st.just("byte_max"), keys, values),
)
steps = st.lists(
    st.tuples(st.integers(0, OPEN - 1), st.one_of(reads, writes, st.just(("commit",)))),
    min_size=4,
    max_size=40,
)

State = dict[int, bytes]


def apply(state: State, step: tuple[Any, ...]) -> None:
    """What a write does to the model."""
    kind = step[0]
    if kind == "set":
        state[step[1]] = step[2]
    elif kind == "clear":
        state.pop(step[1], None)
    elif kind == "clear_range":
        for number in range(min(step[1:]), max(step[1:])):
            state.pop(number, None)
    elif kind == "add":
        old = state.get(step[1], b"")[:1] or b"\0"
        state[step[1]] = bytes([(old[0] + 1) % 256])
    elif kind == "byte_max":
        state[step[1]] = max(state[step[1]], step[2]) if step[1] in state else step[2]


def look(state: State, step: tuple[Any, ...]) -> object:
    """What a read finds in the model."""
    if step[0] == "get":
        return state.get(step[1])
    if step[0] == "range":
        _, one, two, limit, reverse = step
        found = sorted(item for item in state.items() if min(one, two) <= item[0] < max(one, two))
        found = found[::-1] if reverse else found
        return found[:limit] if limit else found
    _, number, offset, or_equal = step
    present = sorted(state)
    base = sum(1 for other in present if other < number or (or_equal and other == number))
    index = base + offset - 1
    if index < 0:
        return "before"
    return present[index] if index < len(present) else "after"


class Client:
    """One transaction under test, with the state that the model says it sees."""

    def __init__(self, db: Any, space: Any) -> None:
        self.db = db
        self.space = space
        self.restart()

    def restart(self) -> None:
        self.transaction = self.db.create_transaction()
        self.seen: State | None = None
        self.begun = -1
        self.looked: list[tuple[tuple[Any, ...], object, list[tuple[Any, ...]]]] = []
        self.written: list[tuple[Any, ...]] = []

    def key(self, number: int) -> bytes:
        packed: bytes = self.space.pack((number,))
        return packed

    def number(self, key: bytes) -> object:
        if key < self.key(0):
            return "before"
        return self.space.unpack(key)[0] if key <= self.key(KEYS - 1) else "after"

    def read(self, step: tuple[Any, ...]) -> object:
        """What a read finds in the store."""
        tr = self.transaction
        if step[0] == "get":
            return tr[self.key(step[1])].value
        if step[0] == "range":
            _, one, two, limit, reverse = step
            rows = tr.get_range(self.key(min(one, two)), self.key(max(one, two)), limit, reverse)
            return [(self.number(row.key), row.value) for row in rows]
        _, number, offset, or_equal = step
        selector = fdb.KeySelector(self.key(number), or_equal, offset)
        return self.number(tr.get_key(selector).value)

    def write(self, step: tuple[Any, ...]) -> None:
        """Make a write in the store."""
        tr, kind = self.transaction, step[0]
        if kind == "set":
            tr[self.key(step[1])] = step[2]
        elif kind == "clear":
            tr.clear(self.key(step[1]))
        elif kind == "clear_range":
            tr.clear_range(self.key(min(step[1:])), self.key(max(step[1:])))
        elif kind == "add":
            tr.add(self.key(step[1]), b"\x01")
        else:
            tr.byte_max(self.key(step[1]), step[2])


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps)
def test_concurrent_transactions_are_strictly_serializable(
    db: Any, space: Any, steps: list[tuple[int, tuple[Any, ...]]]
) -> None:
    del db[space.range()]
    clients = [Client(db, space) for _ in range(OPEN)]
    states: list[State] = [{}]

    for who, step in itertools.chain(steps, ((n, ("commit",)) for n in range(OPEN))):
        client = clients[who]
        if step[0] == "commit":
            commit(client, states)
            client.restart()
        elif step[0] in ("get", "range", "get_key"):
            if step[0] == "range" and step[1] == step[2]:
                # An empty range is answered without a look at the store, on a cluster too: it
                # does not fix what the transaction sees.
                assert client.read(step) == []
                continue
            if client.seen is None:
                if client.written:
                    # A read that own writes answer does not fix what the transaction sees.
                    client.transaction.get_read_version().wait()
                client.begun = len(states) - 1
                client.seen = dict(states[-1])
                for earlier in client.written:
                    apply(client.seen, earlier)
            found = client.read(step)
            assert found == look(client.seen, step)
            client.looked.append((step, found, list(client.written)))
        else:
            client.write(step)
            client.written.append(step)
            if client.seen is not None:
                apply(client.seen, step)

    rows = db.get_range_startswith(space.key())
    assert {space.unpack(row.key)[0]: row.value for row in rows} == states[-1]


def commit(client: Client, states: list[State]) -> None:
    """Commit, and check that the outcome is one that a serial order explains."""
    code = 0
    try:
        client.transaction.commit().wait()
    except fdb.FDBError as error:
        code = error.code
    if code:
        assert code == 1020
        # Nothing conflicts with a transaction if nothing was committed since it began.
        assert client.written
        assert client.looked
        assert client.begun < len(states) - 1
        return
    if not client.written:
        return
    # Committed now: so every read must be what it would have been at this moment.
    for step, found, written in client.looked:
        state = dict(states[-1])
        for earlier in written:
            apply(state, earlier)
        assert look(state, step) == found
    state = dict(states[-1])
    for step in client.written:
        apply(state, step)
    states.append(state)
