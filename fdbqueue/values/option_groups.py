"""Changes of options that come in groups."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any, Self

from .text import meant


class OptionGroup:
    """A change of options by a group changes the fields that were given, and leaves the others.

    given: the names of those fields.
    """

    __slots__ = ("given",)
    given: frozenset[str]

    def __new__(cls, *args: Any, **named: Any) -> Self:
        for name in named:
            if name not in cls.names():
                known = cls.names()
                raise TypeError(f"{cls.__name__} has no argument {name!r}{meant(name, known)}")
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
