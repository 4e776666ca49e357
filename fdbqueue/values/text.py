"""Text for people; what comes from others is safe to show: nothing in it controls a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def visible(text: str | bytes) -> str:
    """Text with unprintable characters escaped.

    Invalid UTF-8, control characters, terminal escapes, line ends and bidirectional marks become
    ``\\x1b``, ``\\n``, ``\\u202e`` and so on.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def excerpt(payload: bytes, characters: int) -> str:
    """The start of a payload as visible text, or all of it if it is short."""
    shown = visible(payload[: 4 * characters])
    if len(payload) <= 4 * characters and len(shown) <= characters:
        return shown
    return f"{shown[:characters]}… ({len(payload):,} bytes)"


def shortened(text: str, most: int) -> str:
    """Text of so many bytes at most: of longer text the beginning, and three times as much of the
    end."""
    stored = text.encode(errors="replace")
    if len(stored) <= most:
        return stored.decode()
    room = max(0, most - len("\n…\n".encode()))
    end = stored[len(stored) - 3 * room // 4 :] if room else b""
    return f"{stored[: room // 4].decode(errors='ignore')}\n…\n{end.decode(errors='ignore')}"


def duration(ms: float | None) -> str:
    """How long something took, as a person says it."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    for unit, whole_ms, most in (("s", 1_000, 60), ("min", 60_000, 60), ("h", 3_600_000, 24)):
        if ms < most * whole_ms:
            return f"{ms / whole_ms:.1f} {unit}"
    return f"{ms / 86_400_000:,.1f} d"


def age(milliseconds: int) -> str:
    """A short duration: ``950 ms``, ``12 s``, ``3 m``, ``5 h``, ``2 d``."""
    if milliseconds < 1_000:
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def since(since_ms: int | None, now_ms: int) -> str:
    """For how long something lasts; empty if it does not."""
    return "" if since_ms is None else age(now_ms - since_ms)


def count(number: int, noun: str) -> str:
    """``1 message``, ``2,000 messages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that somebody may have meant who wrote another; None if none is near."""
    import difflib  # slow to import, and only a typing error needs it

    return next(iter(difflib.get_close_matches(name, list(known), 1)), None)


def meant(name: str, known: Iterable[str]) -> str:
    """What to put behind a sentence that ends with an unknown name."""
    found = nearest(name, known)
    return "" if found is None else f": did you mean {found!r}?"


def names_meant(**elsewhere: str) -> Callable[[F], F]:
    """A decorator: errors of calls that do not fit a function name the argument that is meant.

    elsewhere: what to write in place of arguments that something else has, by their names. Raises
    ``TypeError``, as Python does.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except TypeError as error:
                # No traceback below this frame: the call itself does not fit.
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                problem = _misfit(function, args, named, elsewhere)
                if problem is None:
                    raise
            raise TypeError(problem)

        return cast(F, call)

    return decorate


def _misfit(
    function: Callable[..., Any],
    args: Sequence[Any],
    named: Iterable[str],
    elsewhere: Mapping[str, str],
) -> str | None:
    """What is wrong with a call, if Python does not say it as well."""
    import inspect  # as difflib

    parameters = list(inspect.signature(function).parameters)
    shown = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    for name in named:
        if name not in parameters:
            found = name if name in elsewhere else nearest(name, [*parameters, *elsewhere])
            hint = f": did you mean {elsewhere.get(found, repr(found))}?" if found else ""
            return f"{shown} has no argument {name!r}{hint}"
    runs = "create_transaction", "get_read_version"  # of a database, of a transaction
    if parameters[1:2] == ["tr"] and args[1:] and not any(hasattr(args[1], each) for each in runs):
        first = ", ".join(parameters[1:3])
        return f"the database or transaction is missing: call {shown}({first}, …)"
    return None
