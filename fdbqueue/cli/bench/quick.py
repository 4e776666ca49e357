"""The speed of a store: with one process and with several, in single messages and in batches.

Each step enqueues to a new queue for a while, then receives for as long, or until it is empty. The
enqueued messages must equal those received and those left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from ...values.records import record
from . import checks, measure, processes
from .measure import Plan, number, payload
from .processes import Op, Report, Span, Worker
from .schemes import AUTO

BATCH_BYTES = 2_000_000
"""Maximum payload bytes of a batch, so that it fits in one transaction."""
PAUSE_SECONDS = 0.01
WAIT_SECONDS = 0.5


@record
class Step:
    """One line of the result.

    rate: messages per second; None if the step pauses on purpose. p50_ms, p99_ms: the latency of a
    call or, in the last step, of a message.
    """

    name: str
    processes: int
    batch: int
    rate: float | None
    p50_ms: float
    p99_ms: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, to the microsecond."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def run(many: int, seconds: float, size: int, batch: int) -> Iterator[Step]:
    """Run the steps and yield each result; a step takes ``seconds``.

    many: processes. size: bytes of a payload. batch: messages in a batch, or fewer if they are too
    large. Raises ``BenchmarkFailed``.
    """
    plan = Plan(AUTO.name, consumers=1, seconds=seconds, warm_up=0.0)
    alone = measure.limit("set", plan)
    yield Step("commit of one key", 1, 1, alone.rate, alone.p50_ms, alone.p99_ms)
    batch = max(1, min(batch, BATCH_BYTES // size))
    for count, together in dict.fromkeys([(1, 1), (many, 1), (1, batch), (many, batch)]):
        yield from _put_and_take(count, together, seconds, size)
    yield _delivered(seconds, size)


def _put_and_take(count: int, batch: int, seconds: float, size: int) -> Iterator[Step]:
    with measure.scratch() as space:
        producers = [partial(_put, space, n << 40, batch, size) for n in range(count)]
        enqueue, put = _measured("enqueue", producers, batch, seconds)
        yield enqueue
        consumers = [partial(_take, space, batch)] * count
        receive, taken = _measured("receive and ack", consumers, batch, seconds)
        undone = {n for report in taken for n in report.undone}
        measure.account(
            AUTO.name,
            _numbers(put),
            [n for n in _numbers(taken) if n not in undone],
            processes.once(partial(measure.remaining, AUTO.name, space)),
        )
        yield receive


def _measured(
    name: str, work: Sequence[processes.Work], batch: int, seconds: float
) -> tuple[Step, list[Report]]:
    span, reports = processes.run([(name, one) for one in work], warm_up=0, seconds=seconds)
    ops = [op for report in reports for op in report.ops if op.messages]
    took = [(op.returned - op.began) / 1e6 for op in ops]
    step = Step(
        name,
        len(work),
        batch,
        _rate(ops, span),
        checks.quantile(took, 0.5),
        checks.quantile(took, 0.99),
    )
    return step, reports


def _rate(ops: Sequence[Op], span: Span) -> float:
    until = max((op.returned for op in ops), default=span.end)
    return sum(len(op.messages) for op in ops) / max(1, until - span.begin) * 1e9


def _numbers(reports: Sequence[Report]) -> list[int]:
    return [n for report in reports for op in report.ops for n in op.messages]


def _put(space: bytes, first: int, batch: int, size: int, worker: Worker) -> None:
    put = AUTO.producer(*measure.opened(space))
    worker.repeat_numbered(lambda numbers: put([payload(n, size) for n in numbers]), batch, first)


def _take(space: bytes, batch: int, worker: Worker) -> None:
    consumer = AUTO.consumer(*measure.opened(space), batch)
    worker.start()
    worker.repeat(lambda: [number(data) for data in consumer.take()], until_empty=True)
    worker.report.undone = [number(data) for data in consumer.finish()]


def _delivered(seconds: float, size: int) -> Step:
    """Measure from the return of an enqueue until a waiting consumer has the message."""
    with measure.scratch() as space:
        _, reports = processes.run(
            [("put", partial(_put_slowly, space, size)), ("take", partial(_wait, space))],
            warm_up=0,
            seconds=seconds,
        )
    put, taken = ({n: op.returned for op in report.ops for n in op.messages} for report in reports)
    waited = [max(0, taken[n] - put[n]) / 1e6 for n in put.keys() & taken.keys()]
    return Step(
        "enqueue to delivery", 2, 1, None,
        checks.quantile(waited, 0.5), checks.quantile(waited, 0.99),
    )  # fmt: skip


def _put_slowly(space: bytes, size: int, worker: Worker) -> None:
    put = AUTO.producer(*measure.opened(space))

    def put_after_pause(numbers: Sequence[int]) -> None:
        time.sleep(PAUSE_SECONDS)
        put([payload(n, size) for n in numbers])

    worker.repeat_numbered(put_after_pause)


def _wait(space: bytes, worker: Worker) -> None:
    consumer = AUTO.consumer(*measure.opened(space), batch=1, wait=WAIT_SECONDS)
    worker.start()
    worker.repeat(lambda: [number(data) for data in consumer.take()])
    consumer.finish()
