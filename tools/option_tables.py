"""The tables of options, from where each is declared and described in the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import fields

from fdbqueue import QueueOptions
from fdbqueue.queue.keys.message_keys import Key
from fdbqueue.queue.subscription.subscriptions import Subscriptions
from fdbqueue.schema.consumers import Definition
from fdbqueue.spark.source.settings import Option
from fdbqueue.values import options
from fdbqueue.values.limits import OwnLimits

_NAMED = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): ")
_UNITS = (
    (366 * 86_400, "years"),
    (86_400, "days"),
    (3_600, "hours"),
    (1, "s"),
    (0.001, "ms"),
)
NOT_OPTIONS = ("self", "db", "queue", "handler", "tr")


def meanings(of: Any) -> dict[str, str]:
    """What a docstring says of each name that begins a paragraph with it and a colon."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (inspect.getdoc(of) or "").splitlines():
        if named := _NAMED.match(line):
            names = named[1].split(", ")
            found |= dict.fromkeys(names, line[named.end() :])
        elif names and line.startswith("    "):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return {name: _sentence(text) for name, text in found.items()}


def queue_meanings() -> dict[str, str]:
    """What is said of each option of a queue, with the fields of groups as "bounds.messages"."""
    said = meanings(QueueOptions)
    for name, group in options.GROUPS.items():
        said |= {f"{name}.{field}": text for field, text in meanings(group).items()}
    return said


def queue() -> str:
    """The options of a queue."""
    said = queue_meanings()
    kinds = dict(options.Options.__annotations__)
    for name, group in options.GROUPS.items():
        kinds |= {f"{name}.{field}": kind for field, kind in group.__annotations__.items()}
    rows = []
    for name, default in QueueOptions().flat().items():
        if name != "keys.paused":  # which no queue has
            shown = f"`{default['wait']}`" if isinstance(default, dict) else _value(default)
            rows.append([name, shown, _values(name, str(kinds[name])), said[name]])
    return _table(["option", "default", "values", "meaning"], rows)


def key() -> str:
    """The limits of a key."""
    said = meanings(Key.set)
    return _table(["option", "meaning"], [[each, said[each]] for each in OwnLimits.__annotations__])


def subscription() -> str:
    """The options of a subscription."""
    defaults = {each.name: each.default for each in fields(Definition)} | {"start": "first"}
    shown = {name: getattr(each, "value", each) for name, each in defaults.items()}
    said = meanings(Subscriptions.open)
    rows = [[name, _value(default), said[name]] for name, default in shown.items() if name in said]
    return _table(["option", "default", "meaning"], rows)


def called(function: Callable[..., Any], described: Any = None) -> str:
    """The arguments of a call, which its docstring describes, or that of ``described``."""
    said = meanings(described or function)
    rows = [
        [name, _value(each.default), said[name]]
        for name, each in inspect.signature(function).parameters.items()
        if name not in NOT_OPTIONS
    ]
    return _table(["option", "default", "meaning"], rows)


def terms(*groups: type) -> str:
    """The fields of groups of terms."""
    rows = []
    for group in groups:
        said = meanings(group)
        for field, each in inspect.signature(group).parameters.items():
            name = f"{group.__name__}({field}=)"
            rows.append([name, _value(each.default), said[field]])
    return _table(["option", "default", "meaning"], rows)


def spark(known: Mapping[str, Option]) -> str:
    """A table of options of the data source."""
    rows = []
    for name, option in known.items():
        default = option.otherwise if option.default is None else f"`{option.default}`"
        rows.append([name, default, _choices(option), option.meaning])
    return _table(["option", "default", "values", "meaning"], rows)


# -- what is in the tables ------------------------------------------------------------------------


def _values(name: str, kind: str) -> str:
    none = ", or None" if name in options.OR_NONE or "None" in kind else ""
    if name in options.CHOICES:
        return ", ".join(f'`"{choice}"`' for choice in options.CHOICES[name])
    if name in options.WHOLE:
        low, high = options.WHOLE[name]
        most = f"{low:,} or more" if high == options.MAX_BOUND else f"{low:,} to {high:,}"
        return f"{most}{none}"
    if name in options.SECONDS:
        low, high = options.SECONDS[name]
        return f"{_time(low) if low else 0} to {_time(high)}{none}"
    if "bool" in kind:
        return "True or False"
    if "str" in kind:
        return f"text{none}"
    return "number" if kind == "float" else "a wait strategy, or None"


def _choices(option: Option) -> str:
    if option.most:
        return f"{option.least:,} to {option.most:,}"
    return ", ".join(f"`{choice}`" for choice in option.choices)


# -- how it is written ----------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, *cells in rows:
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join([f'`{name}`', *escaped])} |")
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    plain = text.replace("``", "`")
    return plain[:1].upper() + plain[1:]


def _value(value: object) -> str:
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,g}" if value < 1_000_000 else f"{value:,}"
    return str(value)


def _time(seconds: float) -> str:
    size, name = next(
        ((size, name) for size, name in _UNITS if seconds >= size and seconds % size < 1e-9),
        (1, "s"),
    )
    return f"{seconds / size:g} {name}"
