"""``fdbq enqueue --csv``: rows become messages, and a wrong one is named."""

from __future__ import annotations

import pytest

from fdbqueue import Queue, fdb
from tests.acceptance.running import Fdbq


def test_rows_become_messages(db: fdb.Database, fdbq: Fdbq, name: str) -> None:
    given = 'payload,priority,region,key\n"two\nlines",9,eu,\n[17],,,k\n'
    done = fdbq.ok("enqueue", name, "--csv", "--json", given=given)
    assert done.json == {"queue": name, "enqueued": 2}
    first, second = Queue(name).browse(db)
    assert (Queue(name).value(first), first.priority) == ("two\nlines", 9)
    assert first.headers == {"region": "eu"}
    assert (Queue(name).value(second), second.headers, second.key) == ([17], {}, "k")


def test_what_is_printed_as_csv_can_be_enqueued_again(
    db: fdb.Database, fdbq: Fdbq, name: str
) -> None:
    Queue(name).enqueue(db, 'ü, "quoted"\nline'.encode(), priority=7, headers={"n": 1})
    printed = fdbq.ok("message", "find", name, "--csv").out
    Queue(name).purge(db)
    fdbq.ok("enqueue", name, "--csv", given=printed)
    (message,) = Queue(name).browse(db)
    assert (message.payload.decode(), message.priority) == ('ü, "quoted"\nline', 7)
    assert message.headers == {"n": "1"}  # CSV has no types


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "no messages"),
        ("region\neu\n", "line 1: the first row must name the columns"),
        ("payload,payload\na,b\n", "line 1: two columns are named 'payload'"),
        ("payload,priority\na,1\nb\n", "line 3: 1 cells for 2 columns"),
        ("payload,priority\na,high\n", "line 2: priority must be a whole number, not 'high'"),
        ('payload\n"a', "unexpected end of data"),
        ("payload,headers,n\na,[1],2\n", "line 2: headers must be a JSON object, not '[1]'"),
        (f"payload,backoff\na,{'[' * 9_999}\n", "line 2: backoff must be JSON, not '[[["),
        (b"payload\n\xff\n", "not UTF-8"),
    ],
)
def test_what_is_no_csv_of_messages_is_told_in_one_line(
    fdbq: Fdbq, name: str, given: str | bytes, told: str
) -> None:
    done = fdbq("enqueue", name, "--csv", given=given)
    assert told in done.err
    assert len(done.err.splitlines()) == 1


def test_an_import_of_csv_is_resumed(
    db: fdb.Database, fdbq: Fdbq, name: str, tmp_path: object
) -> None:
    rows = ["payload,n", *(f"{n},{n}" for n in range(50))]
    state = f"{tmp_path}/import.state"
    fdbq.ok("enqueue", name, "--csv", "--resume", state, given="\n".join(rows[:20]) + "\n")
    fdbq.ok("enqueue", name, "--csv", "--resume", state, given="\n".join(rows) + "\n")
    assert [int(each.payload) for each in Queue(name).browse(db)] == list(range(50))
