"""How commands are declared: as functions, whose return types say what they print."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

from typer import Typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command, in whose help a paragraph with indented lines stays as it is."""

    def __init__(self, name: str | None, *, help: str, **settings: Any) -> None:
        literal = re.sub(r"\n\n(?=[^\n]+\n )", "\n\n\b\n", help)
        super().__init__(name, help=literal, **settings)


class Group(Typer):
    """A group of commands."""

    def __init__(self, name: str, help: str, **settings: Any) -> None:
        super().__init__(name=name, help=help, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Add a command; see ``declared``."""

        def add(function: F) -> F:
            super(Group, self).command(name, cls=Command, **settings)(declared(function))
            return function

        return add


def declared(function: Callable[..., Any]) -> Callable[..., None]:
    """A command for typer: with the fields of dataclasses as options, and with those of how it is
    printed what the function returns."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []

    def add(name: str, group: Any) -> None:
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters.extend(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(group)
        )

    signature = inspect.signature(function, eval_str=True)
    for each in signature.parameters.values():
        if is_dataclass(each.annotation):
            add(each.name, each.annotation)
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))
    for output in getattr(signature.return_annotation, "__metadata__", ()):
        add("", output)

    @wraps(function)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        output = given.pop("", None)
        returned = function(**given)
        if output is not None:
            output.show(returned)

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
