"""What commands are declared with, at next to no cost: typer's own is made of it when needed.

typer says what is wrong with a command line, writes help and completes; it takes longer to load
than most commands take. So a command line that is plainly right is parsed here, by ``parse``. For
all others it answers None, and typer decides: a test holds that the two agree.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

Function = Callable[..., Any]
MISSING = inspect.Parameter.empty


class Declared:
    """An option or argument: the names of an option, and the settings as typer has them."""

    def __init__(self, kind: str, names: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.kind = kind
        self.names = names
        self.settings = settings


def Option(*names: str, **settings: Any) -> Any:
    """As ``typer.Option`` in an annotation."""
    return Declared("Option", names, settings)


def Argument(**settings: Any) -> Any:
    """As ``typer.Argument`` in an annotation."""
    return Declared("Argument", (), settings)


class Group:
    """As ``typer.Typer``: commands below a name."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.commands: dict[str, Function] = {}
        self.start: tuple[Function, dict[str, Any]] | None = None

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Add a command, under its own name or another."""

        def add(function: Function) -> Function:
            self.commands[name or function.__name__.replace("_", "-")] = function
            return function

        return add

    def callback(self, **settings: Any) -> Callable[[Function], Function]:
        """What is called before each command."""

        def add(function: Function) -> Function:
            self.start = (function, settings)
            return function

        return add

    def typer(self, outlined: bool = False) -> Any:
        """The same as typer has it. outlined: with the names and docstrings of its commands only,
        which is enough for its own help."""
        import typer

        app = typer.Typer(**self.settings)
        if self.start is not None:
            function, settings = self.start
            app.callback(**settings)(typed(function))
        for name, command in self.commands.items():
            context = self.settings.get("context_settings")
            made = _outline(command) if outlined else typed(command)
            app.command(name, context_settings=context)(made)
        return app


def _outline(function: Function) -> Function:
    def call() -> None:
        raise NotImplementedError("an outline is listed, and never run")

    call.__doc__ = function.__doc__
    return call


def typed(function: Function) -> Function:
    """A function that is declared as typer wants it."""
    import typer

    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    for name, hint in hints.items():
        if get_origin(hint) is Annotated:
            base, declared = get_args(hint)
            if isinstance(declared, Declared):
                made = getattr(typer, declared.kind)(*declared.names, **declared.settings)
                hints[name] = Annotated[base, made]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=hints.get(each.name, each.annotation))
        for each in signature.parameters.values()
    ]
    call.__annotations__ = hints
    call.__dict__["__signature__"] = signature.replace(
        parameters=parameters, return_annotation=signature.empty
    )
    return call


# -- command lines that are plainly right -----------------------------------------------------


class _Unclear(Exception):
    """Raised to leave a command line to typer."""


class _Parameter:
    """A parameter of a command, and how its value is read."""

    def __init__(self, name: str, hint: Any, default: Any) -> None:
        base, declared = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        if not isinstance(declared, Declared):
            raise _Unclear
        if isinstance(base, UnionType):
            (base,) = [each for each in get_args(base) if each is not NoneType]
        self.several = get_origin(base) is list
        self.kind = get_args(base)[0] if self.several else base
        self.name = name
        self.default = default
        self.settings = declared.settings
        self.argument = declared.kind == "Argument"
        self.names = declared.names or (f"--{name.replace('_', '-')}",)
        if {"callback", "is_eager"} & self.settings.keys():
            raise _Unclear

    @property
    def flag(self) -> bool:
        return self.kind is bool

    def value(self, text: str) -> Any:
        parser = self.settings.get("parser")
        if parser is not None:
            return parser(text)
        if isinstance(self.kind, type) and issubclass(self.kind, (str, os.PathLike)):
            return self.kind(text)  # type: ignore[call-arg]
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            return self.kind(text)
        if self.kind not in (int, float):
            raise _Unclear
        number = self.kind(text)
        low, high = self.settings.get("min"), self.settings.get("max")
        if not ((low is None or number >= low) and (high is None or number <= high)):
            raise _Unclear
        return number


def parse(function: Function, words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments that a command line gives to a function; None where it is not plainly right."""
    try:
        return _parsed(function, words)
    except (_Unclear, ValueError):
        return None


def _parsed(function: Function, words: Sequence[str]) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    every = [
        _Parameter(each.name, hints[each.name], each.default)
        for each in inspect.signature(function).parameters.values()
    ]
    options = {name: each for each in every if not each.argument for name in each.names}
    given: dict[str, Any] = {}
    placed: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            placed.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and not name.startswith("--")):
            raise _Unclear
        if option.flag:
            if equals:
                raise _Unclear
            given[option.name] = True
            continue
        if not equals:
            if not left or left[0].startswith("-"):
                raise _Unclear
            text = left.pop(0)
        value = option.value(text)
        given[option.name] = [*given.get(option.name, []), value] if option.several else value
    _place([each for each in every if each.argument], placed, given)
    return {each.name: given.get(each.name, each.default) for each in every}


def _place(arguments: Sequence[_Parameter], words: list[str], given: dict[str, Any]) -> None:
    """Give words to arguments, in their order; the last one may take several."""
    for n, argument in enumerate(arguments):
        if argument.several:
            if n + 1 < len(arguments):
                raise _Unclear
            taken, words = words, []
        else:
            taken, words = words[:1], words[1:]
        if taken:
            values = [argument.value(each) for each in taken]
            given[argument.name] = values if argument.several else values[0]
        elif argument.default is MISSING:
            raise _Unclear
    if words:
        raise _Unclear
