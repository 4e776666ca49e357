"""What the package offers at its top, and where the rest is."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fdbqueue
import fdbqueue.aio
from fdbqueue import (
    Queue,
    QueueOptions,
    Retry,
    Snooze,
    Subscription,
    Worker,
    errors,
    fdb,
    transactional,
)
from fdbqueue.errors import InvalidArgument
from fdbqueue.queue.dead_letters import DeadLetters
from fdbqueue.queue.streams.imports import Import
from fdbqueue.queue.streams.plans import Plans
from fdbqueue.queue.streams.sinks import Sink
from fdbqueue.store.connection import Connection
from fdbqueue.values.options import Options
from tests.needs import require_pyright


def test_at_most_forty_five_names_are_at_the_top() -> None:
    public = [name for name in dir(fdbqueue) if not name.startswith("_")]
    assert sorted(public) == sorted(fdbqueue.__all__)
    assert len(public) <= 45


@pytest.mark.parametrize("name", fdbqueue.__all__)
def test_every_name_at_the_top_is_there_and_is_no_error(name: str) -> None:
    value = getattr(fdbqueue, name)
    assert not (isinstance(value, type) and issubclass(value, errors.QueueError))


def test_type_checkers_see_what_can_be_imported() -> None:
    stub = (Path(fdbqueue.__file__).parent / "__init__.pyi").read_text()
    listed = re.findall(r"^from \.([\w.]*) import (\w+) as \2$", stub, re.M)
    assert len(listed) == stub.count("import ")
    for module, name in listed:
        there = import_module(f"fdbqueue.{module}".rstrip("."))
        assert getattr(there, name) is getattr(fdbqueue, name)
    assert {name for _, name in listed} == {*fdbqueue.__all__, "consumers", "metrics", "spark"}


def test_a_name_that_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="Quue"):
        _ = fdbqueue.Quue  # type: ignore[attr-defined]


def test_importing_the_package_and_its_errors_decides_no_store() -> None:
    code = "import sys, fdbqueue, fdbqueue.errors; assert 'fdb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- transactional ----------------------------------------------------------------------------


@transactional
def put(tr: fdb.Transaction, key: bytes, value: bytes = b"1") -> bytes:
    """Write it."""
    tr[key] = value
    return value


class Books:
    @transactional
    def put(self, transaction: fdb.Transaction, key: bytes) -> Books:
        put(transaction, key)
        return self


def test_a_transactional_function_takes_a_database_or_a_transaction(
    db: fdb.Database, space: fdb.Subspace
) -> None:
    assert put(db, space.pack(("a",)), value=b"2") == b"2"
    tr = db.create_transaction()
    put(tr, space.pack(("b",)))
    books = Books()
    assert books.put(db, space.pack(("c",))) is books
    assert (db[space.pack(("a",))], db[space.pack(("b",))]) == (b"2", None)
    assert db[space.pack(("c",))] == b"1"
    assert (put.__name__, put.__doc__) == ("put", "Write it.")


def test_a_function_without_a_parameter_cannot_be_transactional() -> None:
    def nothing() -> None: ...

    with pytest.raises(InvalidArgument, match="it needs a parameter for the transaction"):
        transactional(nothing)  # type: ignore[arg-type]


def test_what_goes_on_after_its_transaction_cannot_be_transactional() -> None:
    async def later(tr: fdb.Transaction) -> None: ...

    def yielding(tr: fdb.Transaction) -> Iterator[bytes]:
        yield b""

    async def both(tr: fdb.Transaction) -> AsyncIterator[bytes]:
        yield b""

    for function in (later, yielding, both):
        with pytest.raises(InvalidArgument, match="would go on when its transaction is over"):
            transactional(function)


# -- keyword arguments ------------------------------------------------------------------------


def test_every_option_is_a_keyword_argument() -> None:
    assert [*Options.__annotations__] == [field.name for field in fields(QueueOptions)]


def test_the_decorator_of_a_worker_takes_what_add_takes() -> None:
    def named(call: Callable[..., Any]) -> list[str]:
        taken = inspect.signature(call).parameters.values()
        return [each.name for each in taken if each.kind is inspect.Parameter.KEYWORD_ONLY]

    for worker in (Worker, fdbqueue.aio.Worker):
        assert named(worker.handler) == named(worker.add) == ["take", "run", "fail"]


# -- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [Queue, Subscription, Worker, Retry, Snooze, Connection, DeadLetters, Import, Plans, Sink],
    ids=lambda kind: kind.__name__,
)
def test_every_argument_in_seconds_may_be_a_timedelta(kind: type) -> None:
    methods = [
        method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    ]
    assert methods
    for method in methods:
        for each in inspect.signature(method).parameters.values():
            assert each.annotation not in ("float", "float | None"), (method, each)


# -- types ------------------------------------------------------------------------------------

USER_CODE = Path(__file__).parent / "user_code.py.txt"
ROOT = USER_CODE.parent.parent.parent
SHOWN = re.compile(r"# (shows|wrong:) (.+?)(?: \(([\w, ]+)\))?$")


@pytest.fixture
def user_code(tmp_path: Path) -> Path:
    """What users write, as a module outside of the project."""
    path = tmp_path / "user_code.py"
    path.write_text(USER_CODE.read_text())
    return path


def checked(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """What a type checker says, called in the project's directory."""
    return subprocess.run(
        [sys.executable, "-m", *command], check=False, capture_output=True, text=True, cwd=ROOT
    )


def short(kind: str) -> str:
    """A type without the modules of its parts."""
    return re.sub(r"(\w+\.)+", "", kind)


def unnamed(user_code: Path, said: Mapping[int, str]) -> list[tuple[int, str]]:
    """What errors should name, and do not: the types of a mistake, or what is misspelt."""
    return [
        (number, name)
        for number, line in enumerate(user_code.read_text().splitlines(), 1)
        if (match := SHOWN.search(line)) and match[3]
        for name in match[3].split(", ")
        if not re.search(rf"\b{name}\b", said.get(number, ""))
    ]


def test_a_type_checker_sees_what_users_write(user_code: Path) -> None:
    expected = {
        number: (match[1], match[2])
        for number, line in enumerate(user_code.read_text().splitlines(), 1)
        if (match := SHOWN.search(line))
    }
    done = checked("mypy", "--strict", "--no-error-summary", user_code)
    told, said = {}, dict[int, str]()
    for line in done.stdout.splitlines():
        if found := re.match(r".*:(\d+): note: Revealed type is \"(.*)\"", line):
            told[int(found[1])] = ("shows", short(found[2]))
        elif found := re.match(r".*:(\d+): error: .* \[([\w-]+)\]$", line):
            told[int(found[1])] = ("wrong:", found[2])
        if found := re.match(r".*?:(\d+): (.*)", line):
            said[int(found[1])] = f"{said.get(int(found[1]), '')} {found[2]}"
    assert told == expected, done.stdout + done.stderr
    assert unnamed(user_code, said) == []


def test_another_type_checker_sees_the_same(user_code: Path) -> None:
    require_pyright()
    lines = enumerate(user_code.read_text().splitlines(), 1)
    found = [(number, match) for number, line in lines if (match := SHOWN.search(line))]
    settings = user_code.parent / "pyrightconfig.json"
    strict = {"include": ["*.py"], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    settings.write_text(json.dumps(strict))
    done = checked("pyright", "-p", settings, "--pythonpath", sys.executable, "--outputjson")
    shown, wrong, said = {}, set(), dict[int, str]()
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        number = each["range"]["start"]["line"] + 1
        if each["severity"] == "information":
            kind = re.search(r'is "([^"]*)"$', each["message"])
            assert kind is not None, each
            shown[number] = short(kind[1])
        else:
            wrong.add(number)
            said[number] = f"{said.get(number, '')} {each['message']}"
    assert shown == {number: match[2] for number, match in found if match[1] == "shows"}
    assert wrong == {number for number, match in found if match[1] == "wrong:"}, done.stdout
    assert unnamed(user_code, said) == []
