"""What the rules, the dashboard and the autoscaler of docs/kit ask for is what is exposed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from lark import Token, Tree
from prometheus_client import CollectorRegistry

from fdbqueue import Message, Queue
from fdbqueue.cli.main import COMMANDS, GROUPS
from fdbqueue.consumers.consumer_states import ConsumerState
from fdbqueue.metrics import QueueCollector, WorkerMetrics
from fdbqueue.metrics.queues import KNOWN
from fdbqueue.store.binding import fdb
from fdbqueue.values.states import Outcome, State
from fdbqueue.worker import Worker
from tests.docs.promql import PROMQL, rules
from tests.patience import DEADLINE

DOCS = Path(__file__).parent.parent.parent / "docs"
VALUES: dict[str, set[str]] = {
    "state": {*KNOWN, *(each.value for each in State), *(c.name.lower() for c in ConsumerState)},
    "outcome": {each.value for each in Outcome},
}
"""What the labels may be whose values the package chooses."""


@pytest.fixture
def exposed(db: fdb.Database, space: fdb.Subspace) -> dict[str, set[str]]:
    """The samples of a queue and a worker in use, by name, with their labels."""
    registry, over = CollectorRegistry(), threading.Event()
    queue = Queue.create(db, "kit", root=space, backoff=None, max_in_flight=5, rate="1000/s")
    queue.enqueue_many(db, [b"good", b"bad"])
    queue.subscriptions.open(db, "audit", mode="browse")
    registry.register(QueueCollector(db, [queue], keys=5))

    def handle(message: Message) -> None:
        if message.attempts:
            over.set()
        elif message.payload == b"bad":
            raise ValueError("bad")

    metrics = WorkerMetrics(registry)
    with Worker(db, metrics=metrics).add(queue, handle):
        assert over.wait(DEADLINE)
    metrics._count_retry(1020)
    for _ in range(2):
        queue.enqueue(db, b"", key="customer-7")
    found: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def dashboard() -> dict[str, Any]:
    """The dashboard of the kit."""
    found: dict[str, Any] = json.loads((DOCS / "kit" / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    """Every question of the kit to Prometheus."""
    yield from (rule["expr"] for rule in rules())
    scaled = yaml.safe_load((DOCS / "kit" / "keda.yml").read_text())
    yield from (trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"])
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def wrong(expression: str, exposed: dict[str, set[str]]) -> list[str]:
    """What an expression asks for that is not exposed."""
    tree = PROMQL.parse(expression)
    found, known = list[str](), set[str]()
    for selector in tree.find_data("selector"):
        name = str(selector.children[0])
        labels = exposed.get(name)
        if labels is None:
            found.append(f"no metric {name}")
            continue
        known |= labels
        for matcher in selector.find_data("matcher"):
            label, comparison, text = map(str, matcher.children)
            values = {text.strip('"')} if comparison != "=~" else {*text.strip('"').split("|")}
            if label not in labels:
                found.append(f"no label {label} of {name}")
            elif label in VALUES and not values <= VALUES[label]:
                found.append(f"{label} is none of {text}")
    for names in tree.find_data("labels"):
        found += [f"no label {each}" for each in names.children if str(each) not in known]
    assert all(isinstance(each, Tree | Token) for each in tree.children)
    return found


def test_all_ask_for_what_is_exposed(exposed: dict[str, set[str]]) -> None:
    for expression in expressions():
        assert wrong(expression, exposed) == [], expression


def test_the_page_lists_every_metric(exposed: dict[str, set[str]]) -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    told = {
        name
        for row in re.findall(r"^\| (`fdbqueue_.*?) \|", page, re.M)
        for name in re.findall(r"`(fdbqueue_\w+)`", row)
    }
    plain = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exposed}
    # A counter has its name without the suffix for when it began.
    counters = {name for name in told if name.endswith("_total")}
    assert plain - {name.removesuffix("_total") for name in counters} == told


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        for name in re.findall(r"fdbq ([a-z]+)", rule["annotations"]["description"]):
            assert name in {*COMMANDS, *GROUPS}, rule["alert"]
    page = (DOCS / "how-to" / "monitor.md").read_text()
    alerts = [rule["alert"] for rule in rules()]
    assert re.findall(r"^\| `(Fdbqueue\w+)`", page, re.M) == alerts
    led = (DOCS / "how-to" / "runbook.md").read_text().split("| alert |")[1].split("##")[0]
    assert sorted(re.findall(r"`(Fdbqueue\w+)`", led)) == sorted(alerts)
