"""Only the errors of the package come of any input: stored values and keys, selectors, ids,
options, JSON lines and command lines."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fdbqueue
from fdbqueue import Message, NewMessage, Queue, Selector
from fdbqueue.cli import json_schema
from fdbqueue.cli.messages import json_lines
from fdbqueue.cli.queues import queue_options as cli_options
from fdbqueue.cli.terminal import CommandError
from fdbqueue.errors import QueueError, QueueExists
from fdbqueue.schema import codec, leases, records
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.key_kinds import KindKeys
from fdbqueue.schema.keys import QueueKeys, RootKeys
from fdbqueue.store.binding import fdb
from fdbqueue.values import model
from fdbqueue.values.options import QueueOptions
from fdbqueue.values.serializers import loads
from tests.fuzzing import TEXT, Commands, Printed, harmless

SHORT = 250

# -- what is stored -----------------------------------------------------------------------------

STORED = Envelope(
    b"hello", 1_795_703_951_091, 7, {"a": 1, "b": None, "c": "x", "d": 1.5}, 1, last_error="no"
).pack()
UNPACKERS: list[Callable[[bytes], object]] = [
    *(kind.unpack for kind in codec.Stored.__subclasses__()),
    *(
        unpack
        for module in (leases, records)
        for name, unpack in vars(module).items()
        if name.startswith("unpack_")
    ),
]


def spoiled(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes with some of them cut out or put in."""
    place = st.integers(0, 80)
    cut, put = st.integers(0, 3), st.binary(max_size=3)
    return st.builds(
        lambda data, at, cut, put: data[:at] + put + data[at + cut :], whole, place, cut, put
    )


def packed(value: object) -> bytes:
    return codec.pack(value)


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.binary(max_size=9)
)
VALUES = st.recursive(
    st.one_of(ATOMS, st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=7),
        st.dictionaries(st.one_of(st.integers(0, 30), st.text(max_size=3)), inner, max_size=5),
    ),
    max_leaves=9,
).map(packed)
BYTES = st.one_of(
    st.binary(max_size=200), spoiled(st.just(STORED)), VALUES, st.sampled_from([STORED])
)


def fuzz_stored(case: tuple[Callable[[bytes], object], bytes]) -> None:
    unpack, data = case
    with contextlib.suppress(QueueError):
        unpack(data)


def fuzz_envelope(data: bytes) -> None:
    with contextlib.suppress(QueueError):
        Envelope.unpack(data)


# -- keys ---------------------------------------------------------------------------------------


KEYS = QueueKeys(b"q")
PARSERS = [
    *(getattr(KEYS, name) for name in dir(KEYS) if name.startswith("parse_")),
    *(
        getattr(keys, name).parse
        for keys in (KEYS, RootKeys(fdb.Subspace(("root",))))
        for name in dir(type(keys))
        if isinstance(getattr(type(keys), name), KindKeys)
    ),
]
PARTS = st.lists(
    st.one_of(ATOMS.filter(lambda each: each == each), st.text(max_size=5)), max_size=4
)


def fuzz_foreign_keys(case: tuple[Callable[[bytes], object], bytes]) -> None:
    parse, rest = case
    with contextlib.suppress(QueueError):
        parse(b"q\x15\x01" + rest)


FOREIGN = st.one_of(
    st.binary(max_size=40),
    PARTS.map(lambda each: bytes(fdb.tuple.pack(tuple(each)))),
    spoiled(PARTS.map(lambda each: bytes(fdb.tuple.pack(tuple(each))))),
)

# -- what users write ---------------------------------------------------------------------------

LONG_TEXT = st.text(st.characters(exclude_categories=[]), max_size=220)
WORDS = "a region 'x' 1 2.5e3 = <> < AND OR NOT ( ) LIKE IN BETWEEN NULL IS ESCAPE TRUE - , '% \"b"
SELECTORS = st.one_of(
    LONG_TEXT, st.lists(st.sampled_from(WORDS.split()), max_size=14).map(" ".join)
)
HEADERS = st.dictionaries(
    st.sampled_from(["a", "region", "b"]),
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXT),
)


def fuzz_selector(case: tuple[str, dict[str, Any]]) -> None:
    text, headers = case
    with contextlib.suppress(QueueError):
        found = Selector(text).matches(Message("id", b"", headers, 4, 0, 0, 0), 1_000)
        assert found in (True, False)


def fuzz_id(text: str) -> None:
    with contextlib.suppress(QueueError):
        model.parse_id(text)


ANY = st.one_of(ATOMS, TEXT, st.lists(ATOMS, max_size=2), st.dictionaries(TEXT, ATOMS, max_size=2))
OPTIONS = st.dictionaries(st.sampled_from(sorted(QueueOptions.__match_args__)), ANY, max_size=3)
SETTINGS = st.builds(
    lambda name, value: f"{name}={value}",
    st.one_of(TEXT, st.sampled_from(sorted(QueueOptions.__match_args__))),
    st.one_of(TEXT, ANY.map(lambda value: json.dumps(value, default=str))),
)


def fuzz_options(given: dict[str, Any]) -> None:
    with contextlib.suppress(QueueError):
        QueueOptions.of(given)


def fuzz_settings(text: str) -> None:
    with contextlib.suppress(QueueError, CommandError):
        QueueOptions.of(cli_options.parse([text]))


def fuzz_payload(case: tuple[bytes, str]) -> None:
    """A message whose content type lies."""
    payload, kind = case
    message = Message("id", payload, {}, 4, 0, 0, 0, content_type=kind)
    with contextlib.suppress(QueueError):
        loads(None, message)


# -- JSON lines ---------------------------------------------------------------------------------

MEMBERS = sorted(
    {*json_lines.ARGUMENTS, "payload", "payload_base64", "id", "token", *json_schema.PRINTED}
)
LINES = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(MEMBERS), ANY, max_size=4).map(
        lambda value: json.dumps(value, default=str).encode(errors="surrogatepass")
    ),
    st.integers(1, 3000).map(lambda n: b"[" * n),
    spoiled(st.just(b'{"payload": "x", "priority": 7, "headers": {"a": 1}, "delay": 0.5}')),
)


def fuzz_lines(data: list[bytes]) -> None:
    lines = json_lines.arriving(io.BytesIO(b"\n".join(data)))
    reader = json_lines.LineReader(QueueOptions(), NewMessage(b""), lines, digest=True)
    with contextlib.suppress(QueueError):
        for batch in reader.batches():
            reader.blame(batch)


# -- all of it ----------------------------------------------------------------------------------

FUZZED: list[tuple[Callable[[Any], None], st.SearchStrategy[Any]]] = [
    (fuzz_envelope, BYTES),
    (fuzz_stored, st.tuples(st.sampled_from(UNPACKERS), BYTES)),
    (fuzz_foreign_keys, st.tuples(st.sampled_from(PARSERS), FOREIGN)),
    (fuzz_selector, st.tuples(SELECTORS, HEADERS)),
    (fuzz_id, LONG_TEXT),
    (fuzz_options, OPTIONS),
    (fuzz_settings, SETTINGS),
    (fuzz_payload, st.tuples(BYTES, st.sampled_from(["", "application/json", "x", "\x00"]))),
    (fuzz_lines, st.lists(LINES, max_size=4)),
]
"""What is fuzzed, and with what."""


def fuzz(body: Callable[[Any], None], cases: st.SearchStrategy[Any], count: int) -> None:
    """One run of hypothesis."""
    some = settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    some(given(cases)(body))()


@pytest.mark.sample(4)
@pytest.mark.parametrize(("body", "cases"), FUZZED, ids=lambda each: getattr(each, "__name__", ""))
def test_only_the_errors_of_the_package_come_of_any_input(
    body: Any, cases: st.SearchStrategy[Any]
) -> None:
    fuzz(body, cases, SHORT)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Commands, str]]:
    """The command line on the store at hand, and the name of a queue that is there."""
    monkeypatch.chdir(tmp_path)
    db, name = fdbqueue.open(), f"fuzz-{uuid.uuid4().hex}"
    before = set(fdbqueue.list_queues(db))
    yield Commands(), name
    for each in set(fdbqueue.list_queues(db)) - before:
        with contextlib.suppress(QueueError):
            Queue(each).delete(db)


def stock(db: fdb.Database, name: str) -> None:
    """See that the queue is there, whatever the command lines have done to it, with messages."""
    with contextlib.suppress(QueueExists):
        Queue.create(db, name, lease=1, history_seconds=60)
    queue = Queue(name)
    with contextlib.suppress(QueueError):
        if queue.depth(db).ready < 3:
            queue.enqueue_many(db, [HOSTILE] * 4)
            queue.reject(db, queue.receive_many(db, 1, consumer="\x1b[31m")[0], "\x1b]0;owned\x07")


HOSTILE = NewMessage(b"\x1b[2J\xff\x9b31m", headers={"\x1b[2Jh": "\x07", "region": "eu"})


def check(printed: Printed, line: Any) -> None:
    """It ended as it says, told in one line what was wrong, and printed what is harmless."""
    assert printed.code in (0, 1, 2), (line, printed)
    assert "internal error" not in printed.err, (line, printed)
    assert harmless(printed.err), (line, printed)
    if "--raw" not in line.arguments:
        assert harmless(printed.out.decode()), (line, printed)
    if printed.code == 2:
        assert printed.err.splitlines()[-1].startswith("fdbq: "), (line, printed)


def fuzz_commands(commands: Commands, name: str) -> None:
    db = fdbqueue.open()

    def fuzz_cli(line: Any) -> None:
        stock(db, name)
        check(commands.run(line), line)

    fuzz(fuzz_cli, commands.lines(name), SHORT // 2)


@pytest.mark.long
def test_any_command_line_ends_with_a_result_or_one_line_that_says_why(
    commands: tuple[Commands, str],
) -> None:
    fuzz_commands(*commands)
