"""What a hostile name, header, payload or id can do: nothing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbqueue
from fdbqueue import Queue, QueueError
from fdbqueue.binding import fdb
from fdbqueue.codec import unpack_dead, unpack_delayed, unpack_envelope
from fdbqueue.errors import CorruptData
from fdbqueue.keys import RootKeys

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


@settings(max_examples=300, deadline=None)
@given(TEXT, TEXT)
def test_the_keys_of_two_queues_never_meet(one: str, other: str) -> None:
    # Given two names that are allowed
    root = RootKeys(fdb.Subspace(("root",)))
    try:
        spaces = [root.queue(fdbqueue.options.check_name(name)).all() for name in (one, other)]
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
    message = queue.dequeue(db)
    assert message is not None
    assert (message.payload, dict(message.headers)) == (payload, headers)
    assert fdbqueue.verify(db, queue).ok


def test_tokens_share_nothing_and_are_long(db: fdb.Database, queue: Queue) -> None:
    queue.enqueue_many(db, [b"x"] * 50)
    tokens = {queue.receive_many(db, 1)[0].token[:16] for _ in range(50)}
    assert len(tokens) == 50
    assert {len(token) for token in tokens} == {16}
    for n in range(16):
        assert len({token[n] for token in tokens}) > 10, "a byte that is always the same"


@pytest.mark.parametrize(
    ("unpack", "before"),
    [(unpack_dead, [0, 1, b"x", "reason", 1]), (unpack_delayed, [0, 1, b"x"])],
    ids=["dead", "delayed"],
)
@pytest.mark.parametrize("inner", [1, {}, [], None, "text"])
def test_what_stands_in_the_place_of_an_envelope_is_corrupt_data(
    unpack: Any, before: list[Any], inner: Any
) -> None:
    with pytest.raises(CorruptData, match="an envelope"):
        unpack(b"\x01" + msgpack.packb([*before, inner]))


@pytest.mark.parametrize(
    "body",
    [b"\x81\x81\x01\x02\x03", b"\x81\x91\x01\x02", b"\xc1", b""],
    ids=lambda body: body.hex(),
)
def test_what_msgpack_cannot_make_a_value_of_is_corrupt_data(body: bytes) -> None:
    with pytest.raises(CorruptData):
        unpack_envelope(b"\x01" + body)
