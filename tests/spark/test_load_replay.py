"""The jobs that fill a queue from files, and that deliver dead letters again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fdbqueue import Bounds, Queue, fdb
from fdbqueue.errors import InvalidInput, QueueNotFound, SinkUnfinished
from fdbqueue.spark import Step, load, replay
from tests.taking import take

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = [{"carrier": "AA", "delay": 7}, {"carrier": "ÄÖ", "delay": None}]


def values(db: fdb.Database, queue: Queue) -> list[Any]:
    return [queue.value(message) for message in queue.browse(db)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "flights.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in FLIGHTS))
    return path


def test_rows_without_a_payload_become_json(
    spark: SparkSession, db: fdb.Database, queue: Queue, lines: Path
) -> None:
    steps: list[Step] = []
    done = load(db, queue, lines, spark=spark, progress=steps.append)

    messages = list(queue.browse(db))
    assert [queue.value(message) for message in messages] == FLIGHTS
    assert (done.rows, done.new, done.rejected) == (2, 2, 0)
    assert done.size == sum(len(message.payload) for message in messages)
    assert {step.doing for step in steps} <= {"reading", "enqueuing"}


def test_expressions_say_what_becomes_of_columns(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("carrier,delay,note\nAA,7,late\nB6,-3,\n")

    load(
        db,
        queue,
        path,
        columns={"payload": "note", "priority": "IF(delay > 0, 9, 0)", "key": "carrier"},
        headers={"carrier": "carrier", "delay": "delay"},
        spark=spark,
        bad_rows="skip",
    )

    (message,) = queue.browse(db)
    assert (queue.value(message), message.priority) == ("late", 9)
    assert message.headers == {"carrier": "AA", "delay": 7}


def test_columns_that_an_expression_is_of_need_not_be_columns_of_a_message(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("payload,LateBy,Of Day\nlate,75,1\n")

    load(
        db,
        queue,
        path,
        columns={"priority": "lateby div 10"},
        headers={"day": "`of day`"},
        spark=spark,
    )

    (message,) = queue.browse(db)
    assert (queue.value(message), message.priority) == ("late", 7)
    assert message.headers == {"day": 1}


def test_what_was_read_from_a_queue_is_loaded_again(
    spark: SparkSession, db: fdb.Database, queue: Queue, source: dict[str, str], tmp_path: Path
) -> None:
    queue.enqueue(db, b"\xff\x00", priority=7, headers={"region": "eu"}, key="k")
    path = str(tmp_path / "drained.parquet")
    spark.read.format("fdbqueue").options(**source).load().write.parquet(path)
    queue.receive(db, at_most_once=True)

    load(db, queue, path, spark=spark)

    (message,) = queue.browse(db)
    assert (message.payload, message.priority) == (b"\xff\x00", 7)
    assert message.headers == {"region": "eu"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"payload": "a"}\n{"payl\n', "readable, not '{\"payl'"),
        ("a.csv", "payload,priority\na,1\nb,2,3\n", "readable, not 'b,2,3'"),
        ("a.csv", "payload,priority\na,1\nb,99\n", "priority=99: must be an integer from 0 to 9"),
    ],
)
def test_a_malformed_row_is_told_and_nothing_is_written(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    tmp_path: Path,
    name: str,
    text: str,
    said: str,
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"^row ") as raised:
        load(db, queue, path, spark=spark)
    assert said in str(raised.value)
    assert queue.depth(db).enqueued == 0
    assert queue.streams.sinks(db) == {}

    done = load(db, queue, path, spark=spark, bad_rows="skip")
    assert (done.rows, done.rejected) == (1, 1)
    assert said in done.samples[0]
    assert values(db, queue) == ["a"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"paths": "nowhere.parquet"}, "there is no such file"),
        ({"paths": "flights.txt"}, "name one of parquet, json, csv"),
        ({"paths": []}, "name a file"),
        ({"columns": {"body": "carrier"}}, "use payload, priority"),
        ({"columns": {"payload": "nothing"}}, "nothing"),
        ({"columns": {"payload": "carrier +"}}, "Syntax error"),
        ({"columns": {"priority": "carrier"}}, "column 'priority': it is an integer"),
        ({"schema": "a b c"}, "Syntax error"),
        ({"bad_rows": "keep"}, "'keep' is not one of 'fail', 'skip'"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_line(
    spark: SparkSession,
    db: fdb.Database,
    queue: Queue,
    lines: Path,
    arguments: dict[str, object],
    said: str,
) -> None:
    with pytest.raises(InvalidInput) as raised:
        load(db, queue, **{"paths": lines, "spark": spark, **arguments})  # type: ignore[arg-type]
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert queue.depth(db).enqueued == 0


def test_a_load_that_is_made_again_enqueues_nothing(
    spark: SparkSession, db: fdb.Database, queue: Queue, lines: Path
) -> None:
    assert not load(db, queue, lines, id="Monday", spark=spark).before
    again = load(db, queue, lines, id="Monday", spark=spark)
    assert again.before
    assert again.rows == 0
    assert queue.depth(db).enqueued == 2


def test_a_load_into_a_full_queue_tells_how_to_go_on(
    spark: SparkSession, db: fdb.Database, queue: Queue, tmp_path: Path
) -> None:
    queue.set_options(db, bounds=Bounds(messages=10, when_full="block"))
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"payload": "{n:02}"}}\n' for n in range(30)))
    with pytest.raises(SinkUnfinished, match="is full: it holds") as raised:
        load(db, queue, path, room=0, spark=spark)

    queue.set_options(db, bounds=Bounds(messages=None, when_full="reject"))
    done = load(db, queue, path, id=raised.value.sink, spark=spark)

    assert values(db, queue) == [f"{n:02}" for n in range(30)]
    assert done.rows == 30


# -- replay -----------------------------------------------------------------------------------


@pytest.fixture
def dead(db: fdb.Database, queue: Queue) -> list[str]:
    """Dead letters: flights, the later ones more often, and one that is no JSON."""
    ids = []
    for n in range(5):
        payload = json.dumps({"delay": n}).encode() if n < 4 else b"\xff"
        ids.append(queue.enqueue(db, payload, headers={"n": n}))
        delivery = take(db, queue)
        queue.reject(db, delivery, reason="late" if n > 1 else "lost")
    return ids


def test_dead_letters_that_match_are_ready_again(
    spark: SparkSession, db: fdb.Database, queue: Queue, dead: list[str]
) -> None:
    assert replay(db, queue, "reason = 'late'", dry_run=True, spark=spark).matched == 3
    assert queue.depth(db).dead == 5

    done = replay(
        db,
        queue,
        "reason = 'late' AND payload.delay >= 3 OR n = 0",
        payload_schema="delay INT",
        header_columns="n BIGINT",
        spark=spark,
    )

    assert (done.matched, done.replayed) == (2, 2)
    assert sorted(message.id for message in queue.browse(db)) == sorted([dead[0], dead[3]])
    assert queue.depth(db).dead == 3
    assert replay(db, queue, spark=spark).replayed == 3
    assert queue.admin.verify(db).ok


def test_a_condition_that_makes_no_sense_is_said(
    spark: SparkSession, db: fdb.Database, queue: Queue, dead: list[str]
) -> None:
    with pytest.raises(InvalidInput, match="raison"):
        replay(db, queue, "raison = 'late'", spark=spark)
    queue.delete(db)
    with pytest.raises(QueueNotFound):
        replay(db, queue, spark=spark)
