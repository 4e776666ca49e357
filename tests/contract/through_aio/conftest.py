"""The tests of the blocking API, run through that of asyncio: each call runs in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fdbqueue.aio import twins
from fdbqueue.store import tasks

_runner = asyncio.Runner()


def _run(awaitable: Any) -> Any:
    async def main() -> Any:
        return await awaitable

    if threading.current_thread() is threading.main_thread():
        return _runner.run(main())
    return asyncio.run(main())


def _rows(found: AsyncIterator[Any]) -> Iterator[Any]:
    try:
        while True:
            try:
                yield twins.to_original(_run(anext(found)))
            except StopAsyncIteration:
                return
    finally:
        _run(found.aclose())  # type: ignore[attr-defined]


def _through(made: type[twins.Twin], name: str, given: Any) -> Any:
    """A method of the blocking API that calls its twin, unless an operation calls it."""
    original = given.__func__ if isinstance(given, classmethod) else given

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tasks.current.get() is not None:
            return original(self, *args, **kwargs)
        owner = made if isinstance(given, classmethod) else twins.to_twin(self)
        found = getattr(owner, name)(*args, **kwargs)
        if inspect.isasyncgen(found):
            return _rows(found)
        return twins.to_original(_run(found))

    call.__wrapped__ = original  # type: ignore[attr-defined]
    return classmethod(call) if isinstance(given, classmethod) else call


def _waits(twin: Any) -> bool:
    function = twin.__func__ if isinstance(twin, classmethod) else twin
    if inspect.iscoroutinefunction(function):
        return True
    returned = inspect.isfunction(function) and inspect.signature(function).return_annotation
    return str(returned).startswith("Iterator")


@pytest.fixture(autouse=True, scope="session")
def runner() -> Iterator[None]:
    yield
    _runner.close()


@pytest.fixture(autouse=True)
def through_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    for original, made in twins._twins.items():
        for name in dir(original):
            if name.startswith("_"):
                continue
            twin = inspect.getattr_static(made, name)
            given = inspect.getattr_static(original, name)
            if _waits(twin):
                monkeypatch.setattr(original, name, _through(made, name, given))
