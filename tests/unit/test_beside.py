"""``tools/bench beside``: which rows two trees share, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.beside import compare


def tree(factor: float, log: list[float], extra: bool = False) -> Any:
    """A program whose producers send at a rate, and whose blocks have another form each."""

    def run(arguments: Sequence[str]) -> Any:
        log.append(factor)
        if "producers" in arguments:
            if not extra:  # as an earlier commit prints it
                return [{"way": "enqueue", "threads": 8, "rate": 100.0 * factor}]
            bar = {"name": "a bar", "figure": 1.0, "unit": "", "bar": 1.0}
            row = {"figure": 100.0 * factor, "unit": "/s", "bar": None}
            return [{"name": "enqueue, 8", **row}, {"name": "new, 8", **row}, bar]
        if "aio" in arguments:
            return {"rates": {"one task": 10.0 * factor}, "bars": []}
        if "schemes" in arguments:
            return [{"plan": {"scheme": "auto", "consumers": 4}, "rate": factor, "messages": 7}]
        if "bench_engine" in arguments:
            if extra:
                cost = {"name": "reads_us point", "figure": 6 / factor, "unit": "µs", "bar": None}
                return [cost, {"name": "processes sets 4", "figure": factor}]
            return {"reads_us": {"point": 6 / factor}, "processes": {"sets 4": factor, "gain": 1}}
        return None

    return run


def test_each_row_that_both_have_is_compared() -> None:
    log: list[float] = []
    found = compare(tree(2, log), tree(3, log, extra=True), [], 5, lambda line: None)

    assert found == {
        "schemes: auto, 4": 1.5,
        "producers: enqueue, 8": 1.5,
        "aio: one task": 1.5,
        "engine: reads_us point": 1.5,
        "engine: processes sets 4": 1.5,
    }
    assert log[:2] == [2, 3], "in turn"


def test_only_wanted_rows_are_run() -> None:
    log: list[float] = []
    found = compare(tree(2, log), tree(3, log), ["aio: one"], 3, lambda line: None)

    assert found == {"aio: one task": 1.5}
    assert log == [2, 3, 3, 2, 2, 3]
