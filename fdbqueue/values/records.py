"""Frozen classes that cost next to nothing to define: each command defines dozens as it starts.

``dataclass(frozen=True, slots=True)`` compiles six functions for each class. That took longer than
everything else that a command imports. ``record`` compiles one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import Any, Self, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: C) -> C:
    """Make of a class what ``dataclass(frozen=True, slots=True)`` makes of it.

    Instances are compared and hashed by their fields, can be pickled and copied, and cannot be
    changed. ``fields``, ``replace`` and ``asdict`` of ``dataclasses`` work with them.
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__dataclass_params__.frozen = True  # a frozen dataclass may inherit from it
    known = fields(made)
    names = [each.name for each in known]
    shown = [each.name for each in known if each.repr]
    all_of = _getter(names)
    compared = _getter([each.name for each in known if each.compare])
    hashed = _getter([e.name for e in known if (e.compare if e.hash is None else e.hash)])

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    def __setattr__(self: Any, name: str, value: object) -> None:
        if self.__class__ is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if self.__class__ is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    def __getstate__(self: Any) -> tuple[Any, ...]:
        return all_of(self)

    def __setstate__(self: Any, state: tuple[Any, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    methods = [__eq__, __hash__, __repr__, __setattr__, __delattr__, __getstate__, __setstate__]
    for method in [_init(made), *methods]:
        if method.__name__ not in cls.__dict__:
            method.__qualname__ = f"{made.__qualname__}.{method.__name__}"
            setattr(made, method.__name__, method)
    return made  # type: ignore[no-any-return]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _init(made: Any) -> Callable[..., None]:
    parameters, lines = ["self"], []
    known: dict[str, Any] = {"_missing": MISSING}
    annotations = {}
    for each in fields(made):
        value = name = each.name
        annotations[name] = each.type
        if each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            name = f"{name}=_default_{name}"
        elif each.default_factory is not MISSING:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _missing else {name}"
            name = f"{name}=_missing"
        parameters.append(name)
        known[f"_set_{each.name}"] = getattr(made, each.name).__set__  # past ``__setattr__``
        lines.append(f" _set_{each.name}(self, {value})")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n{chr(10).join(lines) or ' pass'}", known)
    init: Any = known["__init__"]
    init.__annotations__ = {**annotations, "return": None}
    return init  # type: ignore[no-any-return]


class OptionGroup:
    """A change of options by a group changes the fields that were given, and leaves the others.

    given: the names of those fields.
    """

    __slots__ = ("given",)
    given: frozenset[str]

    def __new__(cls, *args: Any, **named: Any) -> Self:
        self = object.__new__(cls)
        object.__setattr__(self, "given", frozenset([*cls.names()[: len(args)], *named]))
        return self

    @classmethod
    def names(cls) -> list[str]:
        """The names of the fields."""
        return [each.name for each in fields(cls)]  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **{name: getattr(self, name) for name in self.given}), ()

    def over(self, stored: Self) -> Self:
        """What a change of stored options by these makes of them."""
        return replace(stored, **{name: getattr(self, name) for name in self.given})  # type: ignore[type-var]
