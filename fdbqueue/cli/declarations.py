"""Command declarations: typer's options and arguments, without importing typer.

Importing typer takes longer than most commands run. So ``parse`` handles every command line that is
plainly correct and returns None for all others. For those, and for help and shell completion,
``Group.typer`` builds the typer application. A test checks that both parse alike.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

Function = Callable[..., Any]
MISSING = inspect.Parameter.empty


class Declared:
    """A declared option or argument: the names of an option, and typer's settings."""

    def __init__(self, kind: str, names: Sequence[str], settings: Mapping[str, Any]) -> None:
        self.kind = kind
        self.names = names
        self.settings = settings


def Option(*names: str, **settings: Any) -> Any:
    """Like ``typer.Option`` in an annotation."""
    return Declared("Option", names, settings)


def Argument(**settings: Any) -> Any:
    """Like ``typer.Argument`` in an annotation."""
    return Declared("Argument", (), settings)


class Parameters:
    """A group of options that several commands share, passed as one parameter.

    A subclass declares them as annotated class attributes with defaults.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Group:
    """Like ``typer.Typer``: commands below one name."""

    def __init__(self, **settings: Any) -> None:
        self.settings: dict[str, Any] = {
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
            "context_settings": {"help_option_names": ["-h", "--help"]},
            **settings,
        }
        self.commands: dict[str, Function] = {}
        self.start: tuple[Function, dict[str, Any]] | None = None

    def command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Add a command, by default under the name of its function."""

        def add(function: Function) -> Function:
            self.commands[name or function.__name__.replace("_", "-")] = function
            return function

        return add

    def callback(self, **settings: Any) -> Callable[[Function], Function]:
        """Set the function that runs before each command."""

        def add(function: Function) -> Function:
            self.start = (function, settings)
            return function

        return add

    def typer(self, outlined: bool = False) -> Any:
        """Build the typer application.

        outlined: only with the names and docstrings of the commands, which is enough for help.
        """
        import typer

        app = typer.Typer(**self.settings)
        if self.start is not None:
            function, settings = self.start
            app.callback(**settings)(_for_typer(function))
        for name, command in self.commands.items():
            context = self.settings.get("context_settings")
            made = _outline(command) if outlined else _for_typer(command)
            app.command(name, context_settings=context)(made)
        return app


def _outline(function: Function) -> Function:
    def listed() -> None:
        raise NotImplementedError("an outline is only listed")

    listed.__doc__ = function.__doc__
    return listed


def call(function: Function, arguments: Mapping[str, Any]) -> Any:
    """Call a command with its parsed arguments, gathering those of ``Parameters`` groups."""
    gathered: dict[str, Any] = {}
    for name, hint in _hints(function).items():
        if _is_group(hint):
            gathered[name] = hint(**{inner: arguments[inner] for inner, _, _ in _flat(hint)})
        else:
            gathered[name] = arguments[name]
    return function(**gathered)


def _hints(declared: Any) -> dict[str, Any]:
    hints = get_type_hints(declared, include_extras=True)
    hints.pop("return", None)
    return hints


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Parameters)


def _flat(declared: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation and default of each parameter, groups replaced by what they contain."""
    group = _is_group(declared)
    known = {} if group else inspect.signature(declared).parameters
    for name, hint in _hints(declared).items():
        if _is_group(hint):
            yield from _flat(hint)
        else:
            default = getattr(declared, name, MISSING) if group else known[name].default
            yield name, hint, default


def _metavar(base: Any) -> dict[str, str]:
    """How help shows the value of a number or a file."""
    kinds = {base, *get_args(base)}
    kinds |= {inner for kind in kinds for inner in get_args(kind)}  # of a list
    if kinds & {int, float}:
        return {"metavar": "N"}
    paths = [each for each in kinds if isinstance(each, type) and issubclass(each, os.PathLike)]
    return {"metavar": "FILE"} if paths else {}


def _for_typer(function: Function) -> Function:
    """The command with the signature and annotations that typer expects."""
    import typer

    parameters = []
    for name, hint, default in _flat(function):
        if get_origin(hint) is Annotated:
            base, declared = get_args(hint)
            settings = {**_metavar(base), **declared.settings}
            made = getattr(typer, declared.kind)(*declared.names, **settings)
            typed: Any = Annotated[base, made]
        else:
            typed = hint
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, keyword, default=default, annotation=typed))

    @wraps(function)
    def run(**arguments: Any) -> Any:
        return call(function, arguments)

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__dict__["__signature__"] = inspect.Signature(parameters)
    return run


# -- command lines that are plainly correct -----------------------------------------------------


class _Unclear(Exception):
    """Raised to leave a command line to typer."""


class _Parameter:
    """A parameter of a command, and how its value is parsed."""

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

    def value(self, text: str) -> Any:
        parser = self.settings.get("parser")
        if parser is not None:
            return parser(text)
        if isinstance(self.kind, type) and issubclass(self.kind, (str, os.PathLike)):
            return self.kind(text)  # type: ignore[call-arg]
        if get_origin(self.kind) is Literal and text in get_args(self.kind):
            return text
        if self.kind not in (int, float):
            raise _Unclear
        number = self.kind(text)
        low, high = self.settings.get("min"), self.settings.get("max")
        if not ((low is None or number >= low) and (high is None or number <= high)):
            raise _Unclear
        return number


def parse(function: Function, words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of a command; None unless the command line is plainly correct."""
    try:
        return _parsed(function, words)
    except (_Unclear, ValueError):
        return None


def _parsed(function: Function, words: Sequence[str]) -> dict[str, Any]:
    parameters = [_Parameter(*each) for each in _flat(function)]
    options = {name: each for each in parameters if not each.argument for name in each.names}
    given: dict[str, Any] = {}
    positional: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and not name.startswith("--")):
            raise _Unclear
        if option.kind is bool:
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
    _assign([each for each in parameters if each.argument], positional, given)
    return {each.name: given.get(each.name, each.default) for each in parameters}


def _assign(arguments: Sequence[_Parameter], words: list[str], given: dict[str, Any]) -> None:
    """Assign words to arguments in order; the last argument may take several."""
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
