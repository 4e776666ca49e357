"""What type checkers see of ``fdbqueue.aio``, from the signatures of the blocking API."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from fdbqueue.aio import queues, twins

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "fdbqueue" / "aio" / "queues.pyi"

FIRST_CLASS = "\nclass JobDecorator("
"""What begins here is written anew; what stands before it, imports and what they need, is not."""
EXCHANGED = [
    (r"\bfdb\.Database\b", "Database"),
    (r"\bfdb\.Transaction\b", "Transaction"),
    (r"\bHandle \| str\b", "Queue[Any] | str"),
    (r"\bEnqueuing\[", "Queue["),
    (r"^Iterator\[", "AsyncIterator["),
    (r"^list\[", "builtins.list["),
]
"""What stands in annotations of the blocking API, and what in those of its twin."""
GENERIC = {"Queue": "T", "Batch": "T", "Producer": "T", "Job": "V, R"}
FIRST = {"Transactor": "_both", "fdb.Database": "_db", "fdb.Transaction": "_tr"}
"""By the type of the first argument of a method, what makes its twin."""


_JOBS = """
@overload
def {name}(self, function: Callable[[V], R], /) -> Job[V, R]: ...
@overload
def {name}(
    self, function: Callable[[Transaction, V], Coroutines[R]], /
) -> Job[V, Coroutines[R]]: ...
@overload
def {name}(self, function: Callable[[fdb.Transaction, V], R], /) -> Job[V, R]: ...
"""
SPECIAL = {
    "Queue.job": indent(_JOBS.format(name="job"), "    ").strip()
    + "\n    @overload\n    def job(self, *, name: str) -> JobDecorator: ...",
    "Job.name": "@property\n    def name(self) -> str: ...",
    "__call__": "def __call__(self, *given: Any) -> R: ...",
    "Producer.send": "async def send(self, message: NewMessage[T] | T, *, "
    "room: Seconds | None = ...) -> asyncio.Future[str]: ...",
    "Keys.__getitem__": "def __getitem__(self, key: str) -> Key: ...",
    "Limits.__getitem__": "def __getitem__(self, limit: Limit) -> SharedLimit: ...",
    "__len__": "def __len__(self) -> int: ...",
    "__getitem__": "@overload\n    def __getitem__(self, n: int) -> Delivery: ...\n"
    "    @overload\n    def __getitem__(self, n: slice) -> Self: ...",
    "__iter__": "def __iter__(self) -> Iterator[Delivery]: ...",
    "__aenter__": "async def __aenter__(self) -> Self: ...",
    "__aexit__": "async def __aexit__(self, *how: object) -> None: ...",
}


def stubs() -> str:
    """The text of the stub."""
    classes = [
        (original, made)
        for original, made in twins._twins.items()
        if made.__module__ == queues.__name__
    ]
    imports = "".join(
        f"from {original.__module__.replace('fdbqueue', '.', 1)} import {_name(original)}\n"
        for original, _ in classes
    )
    text, _, _ = TARGET.read_text().partition(FIRST_CLASS)
    text = text.replace("from .transactions", imports + "from .transactions")
    text += f"{FIRST_CLASS}Protocol):\n{indent(_JOBS.format(name='__call__'), '    ')}"
    text += "".join("\n" + "\n".join(_class(*both)) + "\n" for both in classes)
    # It may import more than is left, or twice.
    for how in (["check", "--fix-only", "--quiet", "--select", "F401,I"], ["format"]):
        command = [sys.executable, "-m", "ruff", *how, "--stdin-filename", str(TARGET), "-"]
        done = subprocess.run(command, input=text, capture_output=True, check=True, text=True)
        text = done.stdout
    return text


def _name(original: type) -> str:
    return f"{original.__name__} as _{original.__name__}"


def _same(original: type, name: str, given: Any) -> str | None:
    """The twin of a method in one line, if the types of its arguments and its result are those of
    the original."""
    signature = inspect.signature(given)
    first, *others = list(signature.parameters.values())[1:] or [None]
    maker = None if first is None else FIRST.get(str(first.annotation))
    types = " ".join(str(each.annotation) for each in others) + f" {signature.return_annotation}"
    twins_too = [made.__name__ for made in twins._twins.values()]
    own = re.search(rf"\b(B|T|S|V|Self|Handle|Enqueuing|{'|'.join(twins_too)})\b", types)
    if maker is None or own or typing.get_overloads(given):
        return None
    if str(signature.return_annotation).startswith("Iterator"):
        maker = "_rows"
    return f"    {name} = {maker}(_{original.__name__}.{name})"


def _class(original: type, made: type) -> Iterator[str]:
    name = made.__name__
    yield f"class {name}(Twin{f', Generic[{GENERIC[name]}]' if name in GENERIC else ''}):"
    doc = inspect.getdoc(made) or ""
    yield f'    """{doc}"""'
    if "__init__" in vars(made):
        yield from _function("__init__", original.__init__, plain=True)  # type: ignore[misc]
    for each in dir(made):
        given = inspect.getattr_static(original, each, None)
        if not each.startswith("_") and f"{name}.{each}" in SPECIAL:
            yield f"    {SPECIAL[f'{name}.{each}']}"
            continue
        if each.startswith("_") or each == "blocking" or given is None or not hasattr(made, each):
            continue
        if isinstance(given, classmethod):
            yield from _function(each, given.__func__, of_class=True)
        elif inspect.isfunction(given):
            twin = inspect.getattr_static(made, each)
            if (same := _same(original, each, given)) is not None:
                yield same
                continue
            rows = str(inspect.signature(given).return_annotation).startswith("Iterator")
            yield from _function(each, given, plain=rows or not inspect.iscoroutinefunction(twin))
        else:
            of = given.fget if isinstance(given, property) else given.func
            returned = _exchanged(inspect.signature(of).return_annotation)
            yield "    @property"
            yield f"    def {each}(self) -> {returned}: ..."
    for each in ("__len__", "__getitem__", "__iter__", "__aenter__", "__aexit__", "__call__"):
        if each in vars(made):
            yield f"    {SPECIAL.get(f'{name}.{each}', SPECIAL[each])}"


class _Text(str):
    """What a signature shows as it is."""

    __repr__ = str.__str__


def _function(
    name: str, given: Any, *, plain: bool = False, of_class: bool = False
) -> Iterator[str]:
    overloads = typing.get_overloads(given)
    for each in overloads or [given]:
        if overloads:
            yield "    @overload"
        if of_class:
            yield "    @classmethod"
        signature = inspect.signature(getattr(each, "__func__", each))
        first, *others = signature.parameters.values()
        own = first.replace(name="cls" if of_class else "self", annotation=first.empty)
        if first.name == "self" and first.annotation is not first.empty:
            own = _shown(first)
        result = _exchanged(signature.return_annotation)
        text = inspect.Signature([own, *map(_shown, others)], return_annotation=result)
        yield f"    {'def' if plain else 'async def'} {name}{text}: ..."


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default if parameter.default is parameter.empty else _Text("...")
    return parameter.replace(annotation=_exchanged(parameter.annotation), default=default)


def _exchanged(annotation: Any) -> _Text:
    if annotation is inspect.Parameter.empty:
        return _Text("Any")
    text = annotation if isinstance(annotation, str) else repr(annotation)
    for old, new in EXCHANGED:
        text = re.sub(old, new, text)
    return _Text(text)
