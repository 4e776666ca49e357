"""Listings that may be long: page by page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import fdbqueue

from . import output, terminal
from .output import View
from .parameters import PageOptions

T = TypeVar("T")

PAGE = 1_000
"""So many any list of the package gives at once."""
LISTED = 100
"""So many elements a list that may be long shows unless told otherwise."""


def first(found: Iterable[T], limit: int | None) -> tuple[list[T], bool]:
    """The first ``limit`` elements, and whether there are more; None: all of them."""
    # `islice` takes no larger number.
    if limit is None or limit > sys.maxsize - 1:
        return [*found], False
    some = list(islice(found, limit + 1))
    return some[:limit], len(some) > limit


def pages(found: Iterable[T]) -> Iterator[list[T]]:
    """What was found, in lists of a page each, as it is read."""
    left = iter(found)
    while some := [*islice(left, PAGE)]:
        yield some


def listing(
    noun: str,
    read: Callable[..., Sequence[T]],
    place: Callable[[T], Any],
    headers: Sequence[str],
    row: Callable[[T, int], Sequence[object]],
    json: Callable[[T], dict[str, Any]],
    nothing: str,
    wanted: PageOptions,
    after: Any = ...,
    name: Callable[[T], str] | None = None,
) -> Callable[[], View]:
    """A page of a list that may be long, by default of ``LISTED`` elements.

    read: up to so many behind a place. row: that of an element in the table, at a time by the wall
    clock in milliseconds. after: the place that --after says, and name: what it takes, where that
    is not the place.
    """
    most = wanted.limit or LISTED

    def look() -> View:
        found, behind = list[T](), wanted.after if after is ... else after
        while len(found) <= most:
            asked = min(most + 1 - len(found), PAGE)
            some = read(asked, after=place(found[-1]) if found else behind)
            found += some
            if len(some) < asked:
                break
        shown, now_ms = found[:most], fdbqueue.Clock().wall_ms()
        rows = [row(each, now_ms) for each in shown]
        last = str((name or place)(shown[-1])) if len(found) > most else None
        told = None if last is None else more(noun, most, last)
        return output.table(headers, rows, [json(each) for each in shown], nothing, told)

    return look


def page(
    found: Sequence[T], name: Callable[[T], str], noun: str, wanted: PageOptions
) -> tuple[list[T], str | None]:
    """The elements on a page, and a note if there are more."""
    if wanted.after is not None:
        names = [name(each) for each in found]
        if wanted.after not in names:
            raise terminal.CommandError(f"--after {wanted.after!r}: the list has no such {noun}", 1)
        found = found[names.index(wanted.after) + 1 :]
    shown, cut = first(found, wanted.limit)
    return shown, more(noun, len(shown), name(shown[-1]), len(found)) if cut else None


def more(noun: str, shown: int, last: str, total: int | None = None) -> str:
    """The note below a listing that is cut."""
    of = "" if total is None or total <= shown else f" of {total:,}"
    return (
        f"the first {terminal.count(shown, noun)}{of}: there are more; "
        f"continue with --after {shlex.quote(last)}, or raise --max"
    )
