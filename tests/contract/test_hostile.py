"""What a hostile name, header, payload or id can do: nothing."""

from __future__ import annotations

import ast
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbqueue
from fdbqueue import Headers, Message, NewMessage, Queue, Reject, Run, Selector, Worker, survey
from fdbqueue.errors import InvalidInput, InvalidSelector, QueueError
from fdbqueue.schema.keys import RootKeys
from fdbqueue.store.binding import fdb
from fdbqueue.values.options import check_name
from tests.patience import DEADLINE
from tests.taking import take

PACKAGE = Path(fdbqueue.__file__).parent
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill"}
TEXT = st.text(st.characters(exclude_categories=[]), max_size=220)


def parsed() -> list[tuple[Path, ast.AST]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def test_nothing_that_is_stored_is_ever_evaluated() -> None:
    for path, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, path
            if isinstance(node, ast.Import):
                assert not FORBIDDEN_MODULES & {each.name for each in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module not in FORBIDDEN_MODULES, path


@settings(max_examples=100)
@given(TEXT, TEXT)
def test_the_keys_of_two_queues_never_meet(one: str, other: str) -> None:
    # Given two names that are allowed
    root = RootKeys(fdb.Subspace(("root",)))
    try:
        spaces = [root.queue(check_name(name)).all() for name in (one, other)]
    except QueueError:
        return
    # Then everything of one lies before or behind everything of the other
    (first, second) = sorted(spaces, key=lambda each: bytes(each.start))
    assert (one == other) == (first.start == second.start)
    assert one == other or first.stop <= second.start


@pytest.mark.parametrize(
    "name", ["a\x00b", "\x00\xff", "a\nb", "", "\ud800", "x" * 201, b"a", ("a",), None]
)
def test_a_name_that_could_confuse_is_refused(db: fdb.Database, space: Any, name: Any) -> None:
    with pytest.raises(QueueError):
        Queue.create(db, name, root=space)


@pytest.mark.parametrize(
    "payload", [b"", b"\x00\xff" * 100, b"\x1b[2J\x1b]0;owned\x07", b"cos\nsystem\n."]
)
def test_a_payload_stays_what_it_is(db: fdb.Database, queue: Queue, payload: bytes) -> None:
    # Given a payload and headers that look like control characters, keys or programs
    headers = {"\x00\xff\x15": "\x00\xff", "__class__": "${jndi:ldap://x}", "\x1b[31m": "%s%n"}
    queue.enqueue(db, payload, headers=headers)
    # Then they come back as they were, and the queue is in order
    message = queue.receive(db, at_most_once=True)
    assert message is not None
    assert (message.payload, dict(message.headers)) == (payload, headers)
    assert queue.admin.verify(db).ok


class ItsOwnText(str):
    """As the safe strings of templates are: its text is itself."""

    def __str__(self) -> str:
        return self


class Hidden(str):
    def __str__(self) -> str:
        return "***"


class Rounded(float):
    def __float__(self) -> float:
        return 7.0


class Counted(int):
    def __int__(self) -> int:
        return 7


@pytest.mark.parametrize("kind", [ItsOwnText, Hidden])
def test_a_derived_value_is_what_it_is_and_not_what_it_shows(
    db: fdb.Database, queue: Queue, kind: type[str]
) -> None:
    headers: Headers = {kind("text"): kind("a"), "float": Rounded(2.5), "int": Counted(3)}
    queue.enqueue(db, b"x", headers=headers, key=kind("k"), unique=kind("u"))
    delivery = take(db, queue)
    message = delivery.message
    assert message.headers == {"text": "a", "float": 2.5, "int": 3}
    assert (message.key, message.unique) == ("k", "u")
    queue.ack(db, delivery)
    assert queue.admin.verify(db).ok


def test_tokens_share_nothing_and_are_long(db: fdb.Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"x"] * 50)
    tokens = {queue.receive_many(db, 1)[0].token[:16] for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token) for token in tokens} == {16}
    for n in range(16):
        assert len({token[n] for token in tokens}) > 10, "a byte that is always the same"


ID = "05-000000000001-83ca4e58174f03bb"
TEXT_ARGUMENT: Any = "no"
NESTED: list[object] = []
for _ in range(5_000):
    NESTED = [NESTED]
WRONG = {
    "token as text": lambda queue, db: queue.admin.delivery(db, "ab" * 28),
    "place of leases as text": lambda queue, db: queue.admin.leases(db, after="ab"),
    "stamp as text": lambda queue, db: queue.history(db, after="ab"),
    "state in a list": lambda queue, db: queue.messages(db, ["ready"]),
    "ids in a list of lists": lambda queue, db: queue.cancel(db, [[ID]]),
    "nested choice": lambda queue, db: queue.set_options(db, expired=NESTED),
    "seconds to wait in line": lambda queue, db: queue.line.request(db, wait=5),
    "text for a flag": lambda queue, db: queue.receive(db, at_most_once="no"),
    "text for a flag that is kept": lambda queue, db: queue.subscriptions.open(
        db, "all", exclusive="no"
    ),
    "text for the flag of a verdict": lambda queue, db: Reject("why", drop=TEXT_ARGUMENT),
    "root by its name": lambda queue, db: Queue.create(db, "other", root=TEXT_ARGUMENT),
    "several queues by one name": lambda queue, db: survey(db, "orders"),
    "one level": lambda queue, db: queue.browse(db, levels=0),
    "value of nothing": lambda queue, db: queue.value(None),
    "place of limits as text": lambda queue, db: queue.limits.list(db, after="api"),
    "verdict of all": lambda queue, db: queue.settle(db, [], Reject("why")),
    "headers of a schedule in a list": lambda queue, db: queue.schedules.set(
        db, "s", every=60, headers=[{}]
    ),
    "priority of a schedule": lambda queue, db: queue.schedules.set(
        db, "s", every=60, priority=2**64
    ),
    "cron in a list": lambda queue, db: queue.schedules.set(db, "s", cron=["0 3 * * *"]),
    "consumer by its name": lambda queue, db: queue.admin.evict(db, "worker"),
    "ticket as text": lambda queue, db: queue.line.withdraw(db, "ticket"),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_an_argument_of_another_type_is_refused_and_stores_nothing(
    db: fdb.Database, queue: Queue, call: Any
) -> None:
    queue.enqueue(db, b"x")
    with pytest.raises(InvalidInput) as refusal:
        call(queue, db)
    assert str(refusal.value)
    assert queue.receive(db) is not None
    assert not queue.admin.verify(db).deviations


HOSTILE = [
    b"",
    b"\x1b]0;owned\x07\x1b[2J",
    b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    b"[" * 50_000,
    b'{"__class__": "os.system", "payload": "\\ud800"}',
    b"\xff\xfe" * 1_000,
    b"9" * 10_000,
]
HEADERS = {"\x1b[31m": "\x07", "__reduce__": "x", "a" * 1_000: "\x00", "": None, "%s": 2**63 - 1}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_hostile_message_fails_by_itself_and_the_worker_goes_on(
    db: fdb.Database, space: fdb.Subspace, transactional: bool
) -> None:
    # Given a queue with hostile messages that say they are JSON, and a good one behind them
    queue = Queue.create(db, "hostile", root=space, max_attempts=1)
    lies = [NewMessage(each, headers=HEADERS, content_type="application/json") for each in HOSTILE]
    queue.enqueue_many(db, lies)
    queue.enqueue(db, {"order": 17})
    seen: list[Any] = []
    arrived = threading.Event()

    def handle(*arguments: Any) -> None:
        value = arguments[-1]
        seen.append(value)
        if value == {"order": 17}:
            arrived.set()

    # When a worker handles them
    with Worker(db, 1).add(queue, handle, run=Run(transactional=transactional)):
        assert arrived.wait(DEADLINE)
    # Then those that are none are dead letters that say so, and the rest was handled
    letters = queue.dead.list(db)
    bad = [each for each in HOSTILE if not readable(each)]
    assert [letter.message.payload for letter in letters] == bad
    assert all("cannot read" in (letter.message.last_error or "") for letter in letters)
    assert all(letter.message.headers == HEADERS for letter in letters)
    assert queue.admin.verify(db).ok


def readable(payload: bytes) -> bool:
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__.__bases__",
        "a; b",
        "lambda: 1",
        "\\x41 = 1",
        "exec('x') = 1",
    ],
)
def test_a_selector_is_no_program(text: str) -> None:
    with pytest.raises(InvalidSelector):
        Selector(text)


def test_a_name_in_a_selector_is_a_header_and_nothing_else() -> None:
    message = Message("id", b"", {"__class__": "x", "payload": "y"}, 4, 0, 0, 0)
    assert Selector("__class__ = 'x' AND payload = 'y'").matches(message, 0)
    for name in ("__dict__", "id_", "__init__", "self", "headers", "os"):
        assert Selector(f"{name} IS NULL").matches(message, 0)
