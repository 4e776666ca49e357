"""Runs a program of interleaved transactions, one step after another, and notes what each returns.

A program is a list of steps, and a step is the number of a transaction, the name of an operation,
and its arguments. All of it is JSON: bytes are text with a character for each byte. Results are as
well, and say nothing that differs from run to run: of a versionstamp only which commit it is from.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

from fdbqueue.store.binding import fdb

Step: TypeAlias = list[Any]
Program: TypeAlias = list[Step]
Results: TypeAlias = list[Any]

END = b"\xff"
STAMP = b"\0" * 10
LONGEST_SHOWN = 100
ENDING = {"begin", "at", "commit", "on_error", "reset", "cancel"}
FIRST_MARK = 0x100
"""The character that stands for the first versionstamp; those of others follow."""


def run(db: fdb.Database, program: Program) -> Results:
    """What each step of a program returns, on a store without data, which is left so."""
    _clear(db)
    try:
        return _Run(db).all(program)
    finally:
        _clear(db)


@fdb.transactional
def _clear(tr: fdb.Transaction) -> None:
    tr.clear_range(b"", END)


@fdb.transactional
def is_empty(tr: fdb.Transaction) -> bool:
    """Whether a store has no data, so that programs may be run there."""
    return not tr.get_range(b"", END, limit=1).to_list()


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def _selector(told: list[Any]) -> fdb.KeySelector:
    key, or_equal, offset = told
    return fdb.KeySelector(_bytes(key), or_equal, offset)


class _Run:
    def __init__(self, db: fdb.Database) -> None:
        self.db = db
        self.transactions: dict[int, Any] = {}
        self.pending: dict[int, Callable[[], Any]] = {}
        self.committed: set[int] = set()
        self.marks: dict[bytes, str] = {}

    def all(self, program: Program) -> Results:
        return [self.step(*step) for step in program]

    def step(self, number: int, name: str, *arguments: Any) -> Any:
        try:
            if name in ENDING:
                self.settle(number)
            return getattr(self, name)(number, self.transaction(number), *arguments)
        except fdb.FDBError as error:
            return {"error": error.code}

    # -- what there is ----------------------------------------------------------------------

    def settle(self, number: int) -> None:
        """Have the answer to what was issued before the transaction ends: whether it would come in
        time is left to chance."""
        if number in self.pending:
            try:
                told = self.pending[number]()
            except fdb.FDBError as error:
                told = {"error": error.code}
            self.pending[number] = lambda: told

    def transaction(self, number: int) -> Any:
        """The one of that number; a new one, where there was none yet."""
        if number not in self.transactions:
            self.transactions[number] = self.db.create_transaction()
        return self.transactions[number]

    def begin(self, number: int, tr: Any) -> None:
        """Another transaction."""
        self.committed.discard(number)
        self.transactions[number] = self.db.create_transaction()

    def pin(self, number: int, tr: Any) -> None:
        tr.get_read_version().wait()

    def at(self, number: int, tr: Any, other: int) -> None:
        """Another transaction, which reads what another one reads, unless that has committed."""
        if other in self.committed:
            self.begin(other, tr)
        version = self.transaction(other).get_read_version().wait()
        self.begin(number, tr)
        self.transaction(number).set_read_version(version)

    def issue(self, number: int, tr: Any, name: str, *arguments: Any) -> None:
        """Begin to read, and wait later; at which version is known, whoever commits meanwhile."""
        self.pin(number, tr)
        self.pending[number] = self.reading(tr, name, *arguments)

    def wait(self, number: int, tr: Any) -> Any:
        """The answer to what was issued."""
        waiting = self.pending.pop(number, None)
        return None if waiting is None else waiting()

    def read(self, number: int, tr: Any, name: str, *arguments: Any) -> Any:
        """Read at once."""
        return self.reading(tr, name, *arguments)()

    def reading(self, tr: Any, name: str, snapshot: bool, *arguments: Any) -> Callable[[], Any]:
        view = tr.snapshot if snapshot else tr
        if name == "get":
            value = view.get(_bytes(arguments[0]))
            return lambda: self.told(value.value)
        if name == "key":
            key = view.get_key(_selector(arguments[0]))
            return lambda: self.told(bytes(key))
        begin, end, limit, reverse, mode = arguments
        rows = view.get_range(
            _selector(begin),
            _selector(end),
            limit=limit,
            reverse=reverse,
            streaming_mode=getattr(fdb.StreamingMode, mode),
        )
        return lambda: [[self.told(row.key), self.told(row.value)] for row in rows.to_list()]

    def write(self, number: int, tr: Any, name: str, *arguments: str) -> None:
        """set, clear, clear_range, and the atomic operations."""
        getattr(tr, name)(*map(_bytes, arguments))

    def fill(self, number: int, tr: Any, key: str, size: int) -> None:
        """A long value."""
        tr.set(_bytes(key), b"x" * size)

    def stamp_key(self, number: int, tr: Any, before: str, after: str, value: str) -> None:
        offset = len(before).to_bytes(4, "little")
        tr.set_versionstamped_key(_bytes(before) + STAMP + _bytes(after) + offset, _bytes(value))

    def stamp_value(self, number: int, tr: Any, key: str, before: str, after: str) -> None:
        offset = len(before).to_bytes(4, "little")
        tr.set_versionstamped_value(_bytes(key), _bytes(before) + STAMP + _bytes(after) + offset)

    def conflict(self, number: int, tr: Any, kind: str, begin: str, end: str) -> None:
        getattr(tr, f"add_{kind}_conflict_range")(_bytes(begin), _bytes(end))

    def option(self, number: int, tr: Any, name: str, *arguments: Any) -> None:
        getattr(tr.options, f"set_{name}")(*arguments)

    def commit(self, number: int, tr: Any) -> Any:
        """Whether it wrote anything; then its versionstamp has a mark from now on."""
        stamp = tr.get_versionstamp()
        tr.commit().wait()
        self.committed.add(number)
        with contextlib.suppress(fdb.FDBError):
            ten = bytes(stamp.wait())
            self.marks.setdefault(ten, chr(FIRST_MARK + len(self.marks)))
            return ["wrote", tr.get_committed_version() == int.from_bytes(ten[:8], "big")]
        return ["read", tr.get_committed_version()]

    def on_error(self, number: int, tr: Any, code: int) -> None:
        tr.on_error(fdb.FDBError(code)).wait()

    def reset(self, number: int, tr: Any) -> None:
        tr.reset()

    def cancel(self, number: int, tr: Any) -> None:
        tr.cancel()

    # -- results ------------------------------------------------------------------------------

    def told(self, value: bytes | None) -> str | None:
        if value is None:
            return None
        if len(value) > LONGEST_SHOWN:
            return f"{len(value)} bytes, {zlib.crc32(value)}"
        text = value.decode("latin-1")
        for stamp, mark in self.marks.items():
            text = text.replace(stamp.decode("latin-1"), mark)
        return text
