"""Generates the parts of the documentation that come from the code. Run it after changing either.

It generates all of fdbqueue/aio/queues.pyi, and in pages the text between a comment that names
this file and the comment "end". A test fails if a page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import command_tables
import option_tables
from aio_stubs import TARGET, stubs

from fdbqueue import Fail, Producer, Run, Take, Worker
from fdbqueue.consumers.consumer_states import MOVES
from fdbqueue.consumers.receiving import steps as receiving_steps
from fdbqueue.consumers.receiving.steps import Step
from fdbqueue.schema.keys import QueueKeys
from fdbqueue.spark.source import settings
from fdbqueue.values.states import TRANSITIONS
from fdbqueue.worker.stock.states import ORDER, SUPPLY, Supply, Transition

ROOT = Path(__file__).parent.parent
SPARK = {
    "spark": ["location"],
    "spark/tables": ["layout", "rows"],
    "spark/streams": ["limits", "places"],
    "spark/writing": ["writing"],
}
"""Pages on Spark, and which options each of them has."""


def pages() -> dict[Path, str]:
    """Every page with generated text, as it should be."""
    docs = ROOT / "docs"
    spark = {
        f"{page}.md": {
            f"spark {each}": option_tables.spark(getattr(settings, each.upper())) for each in parts
        }
        for page, parts in SPARK.items()
    }
    options = {
        "queue": option_tables.queue(),
        "key": option_tables.key(),
        "subscription": option_tables.subscription(),
        "worker": option_tables.called(Worker.__init__, Worker),
        "worker.add": option_tables.terms(Take, Run, Fail),
        "producer": option_tables.called(Producer.__init__, Producer),
    }
    parts = {
        "api/options.md": options,
        "guarantees.md": {"states": states()},
        "reference/cli.md": {"commands": command_tables.table()},
        "storage.md": {"keys": keys()},
        **spark,
        "waiting.md": {"moves": moves(), "receiving": receiving()},
        "workers.md": {"supply": holding(SUPPLY, "more"), "order": holding(ORDER, "known")},
    }
    return {
        **{docs / name: _with(docs / name, texts) for name, texts in parts.items()},
        TARGET: stubs(),
    }


def _with(page: Path, texts: dict[str, str]) -> str:
    found = page.read_text()
    for name, text in texts.items():
        begin, end = rf"(<!-- {re.escape(name)}: [^>]*-->\n)", r"(<!-- end -->)"
        put = partial(_between, text)
        found, count = re.subn(begin + ".*?" + end, put, found, flags=re.DOTALL)
        assert count == 1, f"{page} has no comment for {name}, or several"
    return found


def _between(text: str, found: re.Match[str]) -> str:
    return found[1] + text + found[2]


# -- states and keys --------------------------------------------------------------------------


def states() -> str:
    """The states and transitions as a diagram and a table."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += _arrows(TRANSITIONS, lambda state: str(state.value))
    sources, targets = ({getattr(e, end) for e in TRANSITIONS} for end in ("source", "target"))
    ends = sorted(state.value for state in targets - sources)
    lines += [f"    {state} --> [*]" for state in ends]
    lines += ["```", "", "| transition | from | to | when |", "|---|---|---|---|"]
    for edge in TRANSITIONS:
        source, when = edge.source.value if edge.source else "", edge.end.value if edge.end else ""
        lines.append(f"| {edge.name} | {source} | {edge.target.value} | {when} |")
    return "\n".join(lines) + "\n"


def keys() -> str:
    """What a queue stores, by kind."""
    lines = ["| kind | keys | value | what for |", "|---|---|---|---|"]
    for row in QueueKeys.table():
        lines.append(f"| {row.name} | `{row.keys}` | {row.holds} | {row.use} |")
    return "\n".join(lines) + "\n"


def moves() -> str:
    """The lists of consumers and the moves between them as a diagram."""
    arrows = _arrows(MOVES, lambda state: str(state.name.lower()))
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]) + "\n"


def receiving() -> str:
    """The steps of a consumer until it has its answer as a diagram."""

    def named(step: Step) -> str:
        return "[*]" if step is Step.END else step.value.replace(" ", "_")

    arrows = _arrows(receiving_steps.TRANSITIONS, named)
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> try", *arrows, "```"]) + "\n"


def holding(edges: Iterable[Transition], first: str) -> str:
    """States of what a worker holds of a queue as a diagram."""

    def named(state: Enum) -> str:
        return "[*]" if state is Supply.LEFT else str(state.value)

    arrows = [f"    [*] --> {first}", *_arrows(edges, named)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"]) + "\n"


def _arrows(edges: Iterable[Any], named: Callable[[Any], str]) -> Iterator[str]:
    for edge in edges:
        source, target = (
            "[*]" if state is None else named(state) for state in (edge.source, edge.target)
        )
        yield f"    {source} --> {target}: {edge.name}"


if __name__ == "__main__":
    for page, wanted in pages().items():
        page.write_text(wanted)
        print(page.relative_to(ROOT))
