"""As much of PromQL as the kit uses: what it asks for, and what that gives over some scrapes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from lark import Lark, Token, Tree

PROMQL = Lark(
    r"""
    start: expr
    expr: operand (OPERATOR matching? operand)*
    matching: "on" labels
    ?operand: NUMBER | aggregation | call | selector | "(" expr ")"
    aggregation: AGGREGATOR "by" labels "(" expr ")"
    call: FUNCTION "(" expr ("," expr)* ")"
    labels: "(" LABEL ("," LABEL)* ")"
    selector: METRIC matchers? range?
    matchers: "{" matcher ("," matcher)* "}"
    matcher: LABEL COMPARISON ESCAPED_STRING
    range: "[" (DURATION | "$__rate_interval") "]"
    AGGREGATOR: "sum" | "max" | "min"
    FUNCTION: "absent" | "delta" | "rate" | "increase" | "histogram_quantile"
    OPERATOR: "==" | ">=" | ">" | "/" | "unless" | "and"
    COMPARISON: "=~" | "!=" | "="
    DURATION: /[0-9]+[smhd]/
    METRIC: /fdbqueue_[a-z_]+/
    LABEL: /[a-z]+/
    %import common (ESCAPED_STRING, NUMBER, WS)
    %ignore WS
    """,
    parser="earley",
)
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Scrape = dict[tuple[str, Labels], float]
"""The values of one scrape, by the name and the labels of each."""

_BINDING = (("unless",), ("==", ">=", ">"), ("/",))
"""Operators, the loosest first."""
_COMPARE = {"==": operator.eq, ">=": operator.ge, ">": operator.gt}
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def rules() -> list[dict[str, Any]]:
    """The alerts of the kit."""
    kit = Path(__file__).parent.parent.parent / "docs" / "kit" / "alerts.yml"
    (group,) = yaml.safe_load(kit.read_text())["groups"]
    return list(group["rules"])


def seconds(duration: str) -> int:
    """A duration, such as 5m."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def firing(rule: dict[str, Any], scrapes: Sequence[tuple[float, Scrape]]) -> list[Labels]:
    """For what an alert fires at the last of some scrapes, which have times in seconds."""
    tree, lasts = PROMQL.parse(rule["expr"]), seconds(rule.get("for", "0s"))
    since: dict[Labels, float] = {}
    for n, (at, _) in enumerate(scrapes, 1):
        found = _Evaluation(scrapes[:n]).of(tree.children[0])
        since = {labels: since.get(labels, at) for labels in found}
    return [labels for labels, began in since.items() if scrapes[-1][0] - began >= lasts]


class _Evaluation:
    def __init__(self, scrapes: Sequence[tuple[float, Scrape]]) -> None:
        self.scrapes, self.now = scrapes, scrapes[-1][0]

    def of(self, tree: Any) -> Any:
        """What a part of an expression gives: a vector, or a number."""
        if isinstance(tree, Token):
            return float(tree)
        return getattr(self, tree.data)(tree.children)

    def expr(self, parts: Sequence[Any]) -> Any:
        for some in _BINDING:
            for n in range(len(parts) - 1, 0, -1):
                if isinstance(parts[n], Token) and parts[n] in some:
                    on = None
                    right = parts[n + 1 :]
                    if isinstance(right[0], Tree) and right[0].data == "matching":
                        on, right = {*map(str, right[0].children[0].children)}, right[1:]
                    return _combined(str(parts[n]), self.expr(parts[:n]), self.expr(right), on)
        assert len(parts) == 1, parts
        return self.of(parts[0])

    def aggregation(self, parts: Sequence[Any]) -> Vector:
        by, found = {*map(str, parts[1].children)}, Vector()
        assert parts[0] == "sum"
        for labels, value in self.of(parts[2]).items():
            kept = frozenset(each for each in labels if each[0] in by)
            found[kept] = found.get(kept, 0) + value
        return found

    def call(self, parts: Sequence[Any]) -> Vector:
        if parts[0] == "absent":
            return {} if self.of(parts[1]) else {frozenset(): 1.0}
        (selector,) = parts[1].children
        name, matches, lasts = _selected(selector)
        series: dict[Labels, list[tuple[float, float]]] = {}
        for at, scrape in self.scrapes:
            for (of, labels), value in scrape.items():
                if of == name and matches(dict(labels)) and at > self.now - lasts:
                    series.setdefault(labels, []).append((at, value))
        found = Vector()
        for labels, points in series.items():
            if len(points) > 1:
                change = points[-1][1] - points[0][1]
                whole = 1.0 if parts[0] == "delta" else lasts / (points[-1][0] - points[0][0])
                found[labels] = change * whole / (lasts if parts[0] == "rate" else 1)
        return found

    def selector(self, parts: Sequence[Any]) -> Vector:
        name, matches, _ = _selected(Tree("selector", list(parts)))
        return {
            labels: value
            for (of, labels), value in self.scrapes[-1][1].items()
            if of == name and matches(dict(labels))
        }


def _selected(selector: Any) -> tuple[str, Callable[[dict[str, str]], bool], int]:
    """The name of a selector, what its labels must be, and its range in seconds."""
    tests = []
    for matcher in selector.find_data("matcher"):
        label, how, text = map(str, matcher.children)
        tests.append((label, how, text.strip('"')))
    lasts = [seconds(str(each.children[0])) for each in selector.find_data("range")]

    def matches(labels: dict[str, str]) -> bool:
        return all(
            (re.fullmatch(text, labels.get(label, "")) is not None) is (how != "!=")
            for label, how, text in tests
        )

    return str(selector.children[0]), matches, lasts[0] if lasts else 0


def _combined(how: str, left: Vector, right: Any, on: set[str] | None) -> Vector:
    if how in _COMPARE:
        return {labels: value for labels, value in left.items() if _COMPARE[how](value, right)}
    if how == "/":
        return {labels: left[labels] / right[labels] for labels in left.keys() & right.keys()}
    assert how == "unless"

    def seen(labels: Labels) -> Labels:
        return frozenset(each for each in labels if on is None or each[0] in on)

    excluded = {seen(labels) for labels in right}
    return {labels: value for labels, value in left.items() if seen(labels) not in excluded}
