"""Random programs of transactions, and what a FoundationDB server made of them.

    python -m tests.programs record [COUNT]   make the golden results anew, on the server at hand
    python -m tests.programs check            compare the store at hand with them
    python -m tests.programs show SEED        a program and its results, step by step

``generating`` makes a program from a seed, ``running`` runs one on any store, and ``golden`` holds
programs with the results of a real server, which the tests compare with those of the embedded
engine. A program uses the whole key space, so the store at hand must be without data: start a
server of its own with ``FDB_DIR=$(mktemp -d) FDB_PORT=4560 tools/fdbserver start``.
"""

from __future__ import annotations

import json
import sys

import fdbqueue
from fdbqueue.store.binding import DEFAULT, Engine, fdb

from . import generating, golden, running
from .golden import Golden

COUNT = 150
ATTEMPTS = 5


def main(arguments: list[str]) -> int:
    """Run a command; returns the exit code."""
    match arguments:
        case ["record", *count]:
            return record(int(count[0]) if count else COUNT)
        case ["check"]:
            return check()
        case ["show", seed]:
            return show(int(seed))
    print(__doc__, file=sys.stderr)
    return 2


def record(count: int) -> int:
    """Make and store the results of programs."""
    if DEFAULT.engine is Engine.EMBEDDED:
        sys.exit("The results are to be those of a server: set FDBQUEUE_STORE to a cluster file")
    db = _without_data()
    golden.store(Golden(seed, *_made(db, seed)) for seed in range(count))
    print(f"{count} programs in {golden.PATH}, {golden.PATH.stat().st_size:,} bytes")
    return 0


def check() -> int:
    """Print every difference."""
    db = _without_data()
    told = golden.load()
    found = [golden.difference(one, running.run(db, one.program)) for one in told]
    differences = [each for each in found if each is not None]
    print(*differences, sep="\n\n")
    print(f"{len(differences)} of {len(told)} programs differ")
    return 1 if differences else 0


def show(seed: int) -> int:
    """Print one."""
    one = next(each for each in golden.load() if each.seed == seed)
    for n, (step, result) in enumerate(zip(one.program, one.results, strict=True)):
        print(n, json.dumps(step), "->", json.dumps(result))
    return 0


def _without_data() -> fdb.Database:
    db = fdbqueue.open()
    if not running.is_empty(db):
        sys.exit("There is data in this store, and a program would destroy it: take an empty one")
    return db


def _made(db: fdb.Database, seed: int) -> tuple[running.Program, running.Results]:
    """A program and what comes of it, twice the same: a machine that stood still while a program
    ran, so that a transaction grew too old, is none to rely on."""
    program = generating.program(seed)
    before = running.run(db, program)
    for _ in range(ATTEMPTS):
        results = running.run(db, program)
        if results == before:
            return program, results
        before = results
    sys.exit(f"Program {seed} does not return the same twice")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
