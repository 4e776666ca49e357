"""Generates the parts of the documentation that come from the code. Run it after changing either.

It generates all of docs/cli.md, docs/fdbq.1 and fdbqueue/aio/queues.pyi, and in other pages the
text between a comment that names this file and the comment "end". A test fails if a page is out of
date.
"""

from __future__ import annotations

import re
from pathlib import Path

from aio_stubs import TARGET, stubs
from cli_pages import manual, markdown

from fdbqueue.consumers.states import MOVES
from fdbqueue.values.states import TRANSITIONS, State

ROOT = Path(__file__).parent.parent


def pages() -> dict[Path, str]:
    """Every page with generated text, as it should be."""
    docs = ROOT / "docs"
    return {
        docs / "cli.md": markdown(),
        docs / "fdbq.1": manual(),
        docs / "guarantees.md": _with(docs / "guarantees.md", "states", states()),
        docs / "storage.md": _with(docs / "storage.md", "kinds", kinds()),
        docs / "workers.md": _with(docs / "workers.md", "moves", moves()),
        TARGET: stubs(),
    }


def _with(page: Path, name: str, text: str) -> str:
    begin, end = rf"(<!-- {name}: [^>]*-->\n)", r"(<!-- end -->)"
    found = re.sub(begin + ".*?" + end, lambda m: m[1] + text + m[2], page.read_text(), flags=re.S)
    assert text in found, f"{page} has no comment for {name}"
    return found


# -- states and keys --------------------------------------------------------------------------


def states() -> str:
    """The states and transitions as a diagram and a table."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for edge in TRANSITIONS:
        source = edge.source.value if edge.source else "[*]"
        lines.append(f"    {source} --> {edge.target.value}: {edge.name}")
    ends = sorted(
        {state.value for state in State} - {e.source.value for e in TRANSITIONS if e.source}
    )
    lines += [f"    {state} --> [*]" for state in ends]
    lines += ["```", "", "| transition | from | to |", "|---|---|---|"]
    for edge in TRANSITIONS:
        source = edge.source.value if edge.source else ""
        lines.append(f"| {edge.name} | {source} | {edge.target.value} |")
    return "\n".join(lines) + "\n"


def moves() -> str:
    """The lists of consumers and the moves between them as a diagram."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for move in MOVES:
        source, target = (
            "[*]" if state is None else state.name.lower() for state in (move.source, move.target)
        )
        lines.append(f"    {source} --> {target}: {move.name}")
    return "\n".join([*lines, "```"]) + "\n"


def kinds() -> str:
    """The kinds of keys, from the comments beside them."""
    code = (ROOT / "fdbqueue" / "schema" / "keys" / "kinds.py").read_text()
    lines = ["| kind | | key | value |", "|---|---|---|---|"]
    for name, number, comment in re.findall(r"^    ([A-Z_]+) = (\d+)  # (.*)$", code, re.M):
        key, value = re.split(r" -> |: ", comment, maxsplit=1)
        lines.append(f"| {name} | {number} | `{key}` | {value} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for page, wanted in pages().items():
        page.write_text(wanted)
        print(page.relative_to(ROOT))
