"""Only the errors of the package come of any input: stored values and keys, selectors, ids,
options, JSON lines and command lines.

A short version is part of every run. The long one, of a million cases in all, is
``pytest -m slow tests/contract/test_fuzz.py``; it says how many it made of each.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import fdbqueue
from fdbqueue import Message, NewMessage, Queue, Selector
from fdbqueue.cli import json_schema
from fdbqueue.cli.messages import json_lines
from fdbqueue.cli.queues import options as cli_options
from fdbqueue.cli.terminal import CommandError
from fdbqueue.errors import QueueError, QueueExists
from fdbqueue.schema import codec
from fdbqueue.schema.codec.envelopes import unpack_envelope
from fdbqueue.schema.keys import KindKeys, QueueKeys, RootKeys
from fdbqueue.store.binding import fdb
from fdbqueue.values import model
from fdbqueue.values.model import Due, Position
from fdbqueue.values.options import QueueOptions
from fdbqueue.values.serializers import loads
from tests.fuzzing import TEXT, Commands, Printed, harmless

SHORT = 250
LONG = 10_000
"""Cases of one run of hypothesis; the long version makes many runs, each from another seed."""

# -- what is stored -----------------------------------------------------------------------------

STORED = (
    b"\x01\x86\x01\xc4\x05hello\x02\x04\x03\xcf\x00\x00\x01\xa1\xfb\xe2n\xf3\x04\x84\xa1a\x01\xa1b\xc0"
    b"\xa1c\xa1x\xa1d\xcb?\xf8\x00\x00\x00\x00\x00\x00\x05\x01\x13\xa2no"
)
UNPACKERS: list[Callable[[bytes], object]] = [
    unpack
    for module in pkgutil.iter_modules(codec.__path__, f"{codec.__name__}.")
    for name, unpack in vars(importlib.import_module(module.name)).items()
    if name.startswith("unpack_")
    and name not in ("unpack_counters", "unpack_fields")  # any bytes are counters
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
        unpack_envelope(data)


# -- keys ---------------------------------------------------------------------------------------

NAMES = st.one_of(TEXT, st.sampled_from(["\x00", "\x00\xff", "\xff", "a\x00", "\x02"])).filter(
    lambda text: max(text, default="") < "\ud800" or min(text) > "\udfff"
)
TOKENS = st.binary(max_size=20)
WHOLE = st.integers(0, 2**64 - 2)


def fuzz_keys(case: tuple[str, str, bytes, int, int]) -> None:
    """Whatever stands in a key stays there, and comes out of it as it was."""
    queue, name, token, number, index = case
    root = RootKeys(fdb.Subspace(("root",)))
    keys = root.queue(queue)
    assert root.name.parse(root.name(queue))[0] == queue
    position, due = Position(number % 256, index, token), Due(number % 2**48, token)
    claim = token[:16].ljust(16, b"\x00")
    leased = keys.token(claim, keys.ready(position))
    made: list[tuple[bytes, object, Callable[[bytes], object]]] = [
        (keys.ready(position), position, keys.parse_ready),
        (keys.lease_at(position), leased, lambda key: keys.leased_token(key, claim)),
        (keys.until(claim), claim, keys.parse_until),
        (keys.expiry(number, claim), (number, claim), keys.parse_expiry),
        (keys.planned(token, index), (token, index), keys.planned.parse),
        (keys.line.request(number, token), (number, token), keys.line.parse_request),
        (keys.subscription(name), (name,), keys.subscription.parse),
        (keys.cursor(name, number), (name, number), keys.cursor.parse),
        (keys.dead(number, token), (number, token), keys.dead.parse),
        (keys.delayed(*due), due, keys.delayed.parse),
        (keys.moved(name), (name,), keys.moved.parse),
        (keys.unique(name), (name,), keys.unique.parse),
        (keys.mortal(number, name), (number, name), keys.mortal.parse),
        (keys.waiting(name, number, token), (name, number, token), keys.waiting.parse),
        (keys.slot(name, number), (name, number), keys.slot.parse),
        (keys.backlog(name), (name,), keys.backlog.parse),
        (keys.backlog_count(name, 0), (name, 0), keys.backlog_count.parse),
        (keys.window(name, number), (name, number), keys.window.parse),
        (keys.limits(name), (name,), keys.limits.parse),
        (keys.chunk(token, number), (token, number), keys.chunk.parse),
        (keys.consumer(b"", token), (b"", token), keys.consumer.parse),
        (keys.state("s", 1, 5, token), ("s", 1, 5, token), keys.parse_state),
        (keys.sleeper("s", 5, 7, token), ("s", 5, 7, token), keys.parse_sleeper),
    ]
    every = keys.all()
    assert len({key for key, _, _ in made}) == len(made)
    for key, wanted, parse in made:
        assert every.start <= key < every.stop, "it has left its queue"
        assert parse(key) == wanted


KEYS = QueueKeys(b"q")
PARSERS = [
    *(getattr(KEYS, name) for name in dir(KEYS) if name.startswith("parse_")),
    *(
        kind.parse
        for keys in (KEYS, RootKeys(fdb.Subspace(("root",))))
        for kind in vars(keys).values()
        if isinstance(kind, KindKeys)
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
    reader = json_lines.Reader(QueueOptions(), NewMessage(b""), lines, digest=True)
    with contextlib.suppress(QueueError):
        for batch in reader.batches():
            reader.blame(batch)


# -- all of it ----------------------------------------------------------------------------------

FUZZED: list[tuple[Callable[[Any], None], st.SearchStrategy[Any], int]] = [
    (fuzz_envelope, BYTES, 20),
    (fuzz_stored, st.tuples(st.sampled_from(UNPACKERS), BYTES), 20),
    (fuzz_keys, st.tuples(NAMES, NAMES, TOKENS, WHOLE, WHOLE), 5),
    (fuzz_foreign_keys, st.tuples(st.sampled_from(PARSERS), FOREIGN), 10),
    (fuzz_selector, st.tuples(SELECTORS, HEADERS), 15),
    (fuzz_id, LONG_TEXT, 4),
    (fuzz_options, OPTIONS, 4),
    (fuzz_settings, SETTINGS, 4),
    (fuzz_payload, st.tuples(BYTES, st.sampled_from(["", "application/json", "x", "\x00"])), 3),
    (fuzz_lines, st.lists(LINES, max_size=4), 10),
]
"""What is fuzzed, with what, and the runs of it in the long version."""
COMMAND_LINES = 5

CASES: Counter[str] = Counter()


def fuzz(body: Callable[[Any], None], cases: st.SearchStrategy[Any], count: int, n: int) -> None:
    """One run of hypothesis; counts the cases that it made."""

    def counted(case: Any) -> None:
        CASES[body.__name__] += 1
        body(case)

    made = settings(
        max_examples=count,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(cases)(counted))
    seed(n)(made)()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("body", "cases", "runs"), FUZZED, ids=lambda each: getattr(each, "__name__", "")
)
def test_only_the_errors_of_the_package_come_of_any_input(
    body: Any, cases: st.SearchStrategy[Any], runs: int
) -> None:
    fuzz(body, cases, SHORT, 0)


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


def fuzz_commands(commands: Commands, name: str, count: int, n: int) -> None:
    db = fdbqueue.open()

    def fuzz_cli(line: Any) -> None:
        stock(db, name)
        check(commands.run(line), line)

    fuzz(fuzz_cli, commands.lines(name), count, n)


@pytest.mark.long
def test_any_command_line_ends_with_a_result_or_one_line_that_says_why(
    commands: tuple[Commands, str],
) -> None:
    fuzz_commands(*commands, SHORT // 2, 0)


def tell(began: float, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        for name, count in CASES.items():
            print(f"\n{name}: {count:,} cases in {time.monotonic() - began:,.0f} s", flush=True)
    CASES.clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "cases", "runs"), FUZZED, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_million_cases_of_input(
    body: Any, cases: st.SearchStrategy[Any], runs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    CASES.clear()
    began = time.monotonic()
    for n in range(runs):
        fuzz(body, cases, LONG, n + 1)
    tell(began, capsys)


@pytest.mark.slow
def test_a_million_cases_with_command_lines(
    commands: tuple[Commands, str], capsys: pytest.CaptureFixture[str]
) -> None:
    CASES.clear()
    began = time.monotonic()
    for n in range(COMMAND_LINES):
        fuzz_commands(*commands, LONG, n + 1)
    tell(began, capsys)


def test_the_long_version_makes_a_million() -> None:
    assert (sum(runs for _, _, runs in FUZZED) + COMMAND_LINES) * LONG == 1_000_000
