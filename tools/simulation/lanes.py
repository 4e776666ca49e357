"""Histories as pictures: a lane for each client, and time goes down, or to the right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

from workload.history import Operation

MOST_LINES = 25
_NAME = re.compile(r"p\d+-\d+\.\d+:\d+:\d+|[0-9a-f]+-[0-9a-f]{12}-[0-9a-f]{16}")
MOST_SAID = 160
"""Characters of a line that tell about an operation."""
WIDE, HIGH = 110, 40
"""Pixels between two moments, and between two lanes."""


def few(outcome: dict[str, Any]) -> list[Operation]:
    """The last operations of a failure, at most ``MOST_LINES``: on the messages that its problem
    names, or else those that found or changed something."""
    operations = [Operation(**each) for each in outcome.get("around", ())]
    told = [each for each in operations if each.who != "store"]
    names = named(str(outcome["problems"][0]))
    about = [each for each in told if names & named(f"{each.what} {each.result}")]
    if not about:
        about = [each for each in told if each.result or each.name != "receive"]
    return sorted(about, key=lambda each: each.began)[-MOST_LINES:]


def named(told: str) -> set[str]:
    """The tags and the ids of the messages that a text names."""
    return set(_NAME.findall(told))


def text(operations: Sequence[Operation]) -> list[str]:
    """A line for each, in its lane, beside those that are under way."""
    lanes = _lanes(operations)
    lines = [f"{'seconds':>10}  {'lasts':>8}  " + "  ".join(lanes)]
    for one in operations:
        lasts = "for ever" if one.ended is None else f"{(one.ended - one.began) / 1e9:.4f}"
        marks = [
            ("●" if who == one.who else "│" if _under_way(operations, who, one.began) else " ")
            + " " * (len(who) - 1)
            for who in lanes
        ]
        lines.append(f"{one.began / 1e9:10.4f}  {lasts:>8}  {'  '.join(marks)}  {_said(one)}")
    return lines


def svg(operations: Sequence[Operation]) -> str:
    """A bar for each in its lane, from its beginning to its end, in the order of all of these."""
    lanes = _lanes(operations)
    moments = sorted({at for one in operations for at in (one.began, one.ended) if at is not None})
    across = {at: 120 + n * WIDE for n, at in enumerate(moments)}
    right, below = 160 + len(moments) * WIDE, HIGH * (len(lanes) + 1)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right}" height="{below}" '
        'font-family="monospace" font-size="11">'
    ]
    for n, who in enumerate(lanes):
        y = HIGH * (n + 1)
        drawn.append(f'<text x="4" y="{y}">{escape(who)}</text>')
        drawn.append(f'<line x1="116" x2="{right}" y1="{y}" y2="{y}" stroke="#ccc"/>')
    for one in operations:
        y = HIGH * (lanes.index(one.who) + 1)
        x, end = across[one.began], right if one.ended is None else across[one.ended]
        color = "#c66" if one.error or one.ended is None else "#69c"
        drawn.append(
            f'<g><title>{escape(str(one))}</title><rect x="{x}" y="{y - 6}" rx="3" height="12" '
            f'width="{max(4, end - x)}" fill="{color}"/><text x="{x}" y="{y - 9}">'
            f"{escape(f'{one.name} {one.queue}')}</text></g>"
        )
    return "\n".join([*drawn, "</svg>", ""])


def _lanes(operations: Sequence[Operation]) -> list[str]:
    return list(dict.fromkeys(one.who for one in operations))


def _under_way(operations: Sequence[Operation], who: str, at: int) -> bool:
    mine = (one for one in operations if one.who == who and one.began < at)
    return any(one.ended is None or one.ended > at for one in mine)


def _said(one: Operation) -> str:
    _, _, told = str(one).partition(f"#{one.n} ")
    return told if len(told) <= MOST_SAID else told[:MOST_SAID] + "…"
