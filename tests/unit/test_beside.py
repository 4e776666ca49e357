"""``tools/bench beside``: which rows two trees share, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.beside import compare


def tree(factor: float, log: list[float], extra: bool = False) -> Any:
    """A program whose producers send at a rate, and whose blocks have another form each."""

    def run(arguments: Sequence[str]) -> Any:
        log.append(factor)
        if arguments[0] == "producers":
            ways = ["enqueue", *(["new"] if extra else [])]
            return [{"way": way, "threads": 8, "rate": 100.0 * factor} for way in ways]
        if arguments[0] == "aio":
            return {"rates": {"one task": 10.0 * factor}, "bars": []}
        if arguments[0] == "schemes":
            return [{"plan": {"scheme": "auto", "consumers": 4}, "rate": factor, "messages": 7}]
        return None

    return run


def test_each_row_that_both_have_is_compared() -> None:
    log: list[float] = []
    found = compare(tree(2, log), tree(3, log, extra=True), [], 5, lambda line: None)

    assert found == {
        "schemes: auto, 4": 1.5,
        "producers: enqueue, 8": 1.5,
        "aio: one task": 1.5,
    }
    assert log[:2] == [2, 3], "in turn"


def test_only_wanted_rows_are_run() -> None:
    log: list[float] = []
    found = compare(tree(2, log), tree(3, log), ["aio: one"], 3, lambda line: None)

    assert found == {"aio: one task": 1.5}
    assert log == [2, 3, 3, 2, 2, 3]
