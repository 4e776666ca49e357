"""Messages as JSON and back: what is exported and imported is what it was."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fdbqueue import NewMessage, Queue, fdb
from fdbqueue.cli import json_schema
from fdbqueue.cli.messages import csv_lines, json_lines
from fdbqueue.errors import InvalidArgument
from fdbqueue.values.options import QueueOptions

names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20).filter(
    str.isprintable
)
scalars = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | names
moments = st.integers(1, 10**8).map(
    lambda ms: datetime.now(UTC).replace(microsecond=0) + timedelta(days=1, milliseconds=ms)
)
waits = st.builds(lambda s: {"wait": "wait_fixed", "seconds": s}, st.floats(0, 1e6))
messages = st.builds(
    NewMessage,
    payload=st.binary(max_size=200) | names.map(str.encode),
    priority=st.integers(0, 9),
    headers=st.dictionaries(
        names, scalars | st.floats(allow_nan=False, allow_infinity=False), max_size=4
    ),
    at=st.none() | moments,
    ttl_ends_at=st.none() | moments.map(lambda at: at + timedelta(days=2)),
    max_attempts=st.none() | st.integers(1, 1_000),
    backoff=st.none() | waits,
    key=st.none() | names,
    content_type=st.none() | names,
)
OWN = {"id", "level", "attempts", "enqueued_at"}
"""What a message does not keep, beside whether another one of its key is before it."""


def exported(db: fdb.Database, queue: Queue, ids: list[str]) -> list[dict[str, Any]]:
    found = [queue.get(db, each) for each in ids]
    return [
        json.loads(json.dumps(json_schema.state_json(each))) for each in found if each is not None
    ]


def imported(db: fdb.Database, queue: Queue, text: str) -> list[str]:
    lines = json_lines.arriving(io.BytesIO(text.encode()))
    reader = json_lines.LineReader(queue.options(db), NewMessage(b""), lines, digest=False)
    return [each for batch in reader.batches() for each in queue.enqueue_many(db, batch.messages)]


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(given=st.lists(messages, min_size=1, max_size=5), as_array=st.booleans())
def test_what_is_exported_and_imported_is_what_it_was(
    db: fdb.Database, queue: Queue, given: list[NewMessage], as_array: bool
) -> None:
    before = exported(db, queue, queue.enqueue_many(db, given))

    text = json.dumps(before) if as_array else "\n".join(map(json.dumps, before))
    after = exported(db, queue, imported(db, queue, text))

    assert len(before) == len(given)
    for old, new in zip(before, after, strict=True):
        for each in (old, new):
            each["state"] = "ready" if each.pop("waits_for", None) else each["state"]
        assert {**new, **{name: old[name] for name in OWN}} == old


def test_an_array_may_be_spread_over_lines(db: fdb.Database, queue: Queue) -> None:
    text = '[\n{"payload": "a"},\n{"payload": "b"}\n]\n'

    ids = imported(db, queue, text)

    assert [message.payload for message in queue.peek(db, 9)] == [b'"a"', b'"b"']
    assert len(ids) == 2


def test_a_line_that_says_when_does_not_take_it_from_the_command_line(
    db: fdb.Database, queue: Queue
) -> None:
    due = "2031-05-01T12:00:00.000+00:00"
    text = f'{{"payload": "a", "due_at": "{due}", "ttl_ends_at": "{due}"}}'

    lines = json_lines.arriving(io.BytesIO(text.encode()))
    given = NewMessage(b"", delay=60, ttl=90)
    (batch,) = json_lines.LineReader(queue.options(db), given, lines, digest=False).batches()
    (message_id,) = queue.enqueue_many(db, batch.messages)

    (found,) = exported(db, queue, [message_id])
    assert datetime.fromisoformat(found["due_at"]) == datetime.fromisoformat(due)
    assert datetime.fromisoformat(found["ttl_ends_at"]) == datetime.fromisoformat(due)


def test_a_time_to_live_that_is_over_ends_the_message_as_it_would_have(
    db: fdb.Database, queue: Queue
) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    queue.enqueue_many(db, [NewMessage(b"x", ttl_ends_at=past)])

    assert queue.receive(db) is None
    assert queue.depth(db).expired == 1


def test_who_enqueues_many_learns_how_many_were_new(db: fdb.Database, queue: Queue) -> None:
    three = [NewMessage(b"x", dedup_id="one")] * 2 + [NewMessage(b"y", unique="other")]

    first = queue.enqueue_many(db, three)
    again = queue.streams.importer("again").enqueue(db, three, since=b"", until=b"end")

    assert (first.new, again.new) == (2, 0)
    assert again == first == [first[0], first[0], first[2]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"content_type": ""},
        {"content_type": "x" * 201},
        {"ttl_ends_at": datetime(2030, 1, 1)},
        {"ttl_ends_at": datetime.now(UTC), "ttl": 5},
    ],
)
def test_what_cannot_be_imported_is_refused(
    db: fdb.Database, queue: Queue, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue_many(db, [NewMessage(b"x", **wrong)])


def test_rows_of_csv_that_arrive_together_are_enqueued_together() -> None:
    text = "payload\n" + "".join(f"{n}\n" for n in range(1_000))
    lines = csv_lines.converted(json_lines.arriving(io.BytesIO(text.encode())))

    reader = json_lines.LineReader(QueueOptions(), NewMessage(b""), lines, digest=False, typed=True)
    (batch,) = reader.batches()

    assert [int(message.payload) for message in batch.messages] == [*range(1_000)]
    assert batch.numbers == [*range(2, 1_002)], "the numbers of the rows"
