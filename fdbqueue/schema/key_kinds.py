"""How keys of one kind are packed and parsed, as a row of the table in ``keys`` says."""

from __future__ import annotations

import struct
from collections.abc import Callable
from copy import copy
from types import UnionType
from typing import Any, Generic, Self, TypeVarTuple, get_args, get_origin, overload

from ..errors import CorruptData
from ..store.binding import fdb
from ..store.client import pack_bytes, pack_int, pack_text
from .codec import Stored

Ts = TypeVarTuple("Ts")
Value = str | type[Stored] | Callable[[bytes], object]


class KeyTable:
    """Keys below a prefix: those of the rows in the class, each made when it is first asked for."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def __init_subclass__(cls) -> None:
        own = [each for each in vars(cls).values() if isinstance(each, Kind)]
        for row in own:
            forms = [each for each in own if each.number == row.number]
            row.forms, row.name = forms, forms[0].name or forms[0].attribute.upper()
            begins = (each.parts for each in forms if each.parts == row.parts[: len(each.parts)])
            row.least = min(filter(None, map(len, begins)), default=0)

    @classmethod
    def table(cls) -> list[Kind]:
        """The rows, in the order of their numbers."""
        found = [each for base in cls.__mro__ for each in vars(base).values()]
        return sorted((each for each in found if isinstance(each, Kind)), key=lambda it: it.number)


class Kind:
    """A row of the table: keys that begin with a number, and have the same elements behind it.

    name: of all keys with its number: that of the first such row, by default in capitals. value:
    what is stored there: the class of a record, a function that reads it, or words. use: what for,
    or who writes it. parts: the names and the types of the elements. Where a name begins with a
    minus, the key has the negative number, and the highest stands first. forms: all rows with its
    number. least: the number of elements of the shortest of them that it extends.
    """

    attribute: str
    forms: list[Kind]
    least: int
    parts: tuple[tuple[str, tuple[type, ...]], ...] = ()

    def __init__(self, number: int, value: Value, use: str, name: str = "") -> None:
        self.number, self.value, self.use, self.name = number, value, use, name

    def __set_name__(self, owner: type[KeyTable], attribute: str) -> None:
        self.attribute = attribute

    @property
    def keys(self) -> str:
        """Its keys in words."""
        return f"({', '.join([str(self.number), *(name for name, _ in self.parts)])})"

    @property
    def holds(self) -> str:
        """What is stored there, in words."""
        value = self.value
        return value if isinstance(value, str) else value.__name__.removeprefix("unpack_")

    def has(self, elements: tuple[object, ...]) -> bool:
        """Whether these are the elements of one of its keys."""
        return len(elements) == len(self.parts) and all(
            isinstance(each, types) and (name != "0" or each == 0)
            for each, (name, types) in zip(elements, self.parts, strict=True)
        )

    def read(self, stored: bytes) -> object:
        """What is stored at one of its keys. Raises ``CorruptData``."""
        if isinstance(self.value, str):
            return stored
        read: Callable[[bytes], object] = getattr(self.value, "unpack", self.value)
        return read(stored)


class Single(Kind):
    """The key that has a number alone, or a constant behind it."""

    def __init__(self, number: int, value: Value, use: str, constant: int | None = None) -> None:
        super().__init__(number, value, use)
        self._packed = pack_int(number) + (b"" if constant is None else pack_int(constant))
        if constant is not None:
            self.parts = ((str(constant), (int,)),)

    @overload
    def __get__(self, keys: None, owner: type[KeyTable]) -> Self: ...

    @overload
    def __get__(self, keys: KeyTable, owner: type[KeyTable]) -> bytes: ...

    def __get__(self, keys: KeyTable | None, owner: type[KeyTable]) -> Self | bytes:
        if keys is None:
            return self
        # The next access finds it there, and does not come here.
        key = keys.__dict__[self.attribute] = keys.prefix + self._packed
        return key


class KindKeys(Kind, Generic[*Ts]):
    """The keys of a row: call it with their elements.

    prefix: what they begin with, of the keys that it is an attribute of. end: behind them all.
    first, last: select the first one, or what follows where there is none, and what is behind all.
    """

    prefix: bytes
    end: bytes
    first: fdb.KeySelector
    last: fdb.KeySelector
    _negative: bool
    _packers: list[Callable[[Any], bytes]]

    def __set_name__(self, owner: type[KeyTable], attribute: str) -> None:
        super().__set_name__(owner, attribute)
        # `KindKeys[int, str](…)` gets this only after `__init__`; names are set later still, when
        # the class is whole.
        hints = getattr(self, "__orig_class__", None) or type(self).__orig_bases__[0]  # type: ignore[attr-defined]
        self.parts = tuple(map(_part, get_args(hints)))
        self._negative = any(name[0] == "-" for name, _ in self.parts)
        self._packers = [_packer(*part) for part in self.parts]

    def __get__(self, keys: KeyTable | None, owner: type[KeyTable]) -> Self:
        if keys is None:
            return self
        bound = copy(self)
        bound.prefix = keys.prefix + pack_int(self.number)
        # No element of a tuple begins with this byte.
        bound.end = bound.prefix + b"\xff"
        bound.first = fdb.KeySelector.first_greater_or_equal(bound.prefix)
        bound.last = fdb.KeySelector.first_greater_or_equal(bound.end)
        # Once it is whole: another thread may look, or a signal raise, at any line before.
        keys.__dict__[self.attribute] = bound
        return bound

    def __call__(self, *elements: *Ts) -> bytes:
        every: tuple[Any, ...] = elements
        packed = self.prefix
        try:
            # There may be fewer elements than packers: `begin` has the first ones only.
            for pack, element in zip(self._packers, every):  # noqa: B905 (a keyword is slow)
                packed += pack(element)
        except (OverflowError, IndexError):  # an integer that only the bindings can pack
            return bytes(fdb.tuple.pack(self._signed(elements), self.prefix))
        return packed

    @property
    def rows(self) -> slice:
        """All keys with the number and an element, those of other rows of the table among them."""
        return within(self.prefix)

    def begin(self, *first: object) -> bytes:
        """What the keys with these first elements begin with."""
        return self(*first)  # type: ignore[arg-type]

    def under(self, *first: object) -> slice:
        """The keys with these first elements, and at least one more."""
        return within(self.begin(*first))

    def before(self, *elements: object) -> slice:
        """The keys with these first elements, where that in the last place is smaller."""
        return slice(self.under(*elements[:-1]).start, self.begin(*elements))

    def since(self, first: object) -> slice:
        """The keys from this first element on."""
        return slice(self.begin(first), self.end)

    def parse(self, key: bytes) -> tuple[*Ts]:
        """The elements of a key; fewer in one of another row, of which these are the first.

        Raises ``CorruptData``.
        """
        types = tuple(types for _, types in self.parts)
        found: Any = unpacked(key, self.prefix, *types, least=self.least)
        return self._signed(found) if self._negative else found  # type: ignore[no-any-return]

    def _signed(self, elements: tuple[Any, ...]) -> Any:
        """Elements as a key has them, or from those of a key."""
        signs = zip(elements, self.parts, strict=False)
        return tuple(-each if name[0] == "-" else each for each, (name, _) in signs)


def _part(hint: Any) -> tuple[str, tuple[type, ...]]:
    """The name and the types of an element, of ``Annotated`` with them."""
    kind, name = get_args(hint)
    every = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return name, tuple(get_origin(each) or each for each in every)


def _packer(name: str, types: tuple[type, ...]) -> Callable[[Any], bytes]:
    """What packs an element: fast for what most keys have."""
    if name[0] == "-":
        return lambda number: fdb.tuple.pack((-number,))
    return _PACKERS.get(types, _pack)


def _pack(element: object) -> bytes:
    return pack_text(element) if type(element) is str else fdb.tuple.pack((element,))


_PACKERS: dict[tuple[type, ...], Callable[[Any], bytes]] = {
    (int,): pack_int,
    (str,): pack_text,
    (bytes,): pack_bytes,
}


def elements(key: bytes, prefix: bytes) -> tuple[Any, ...]:
    """The elements that follow a prefix. Raises ``CorruptData``."""
    try:
        found: tuple[Any, ...] = fdb.tuple.unpack(key, len(prefix))
        return found
    except (ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
        raise CorruptData(what="a key", problem=repr(error)) from None


def unpacked(
    key: bytes, prefix: bytes, *types: type | tuple[type, ...], least: int | None = None
) -> tuple[Any, ...]:
    """The elements that follow a prefix. ``least``: how many there must be; all where None.

    Raises ``CorruptData`` for elements of other types: somebody else wrote below the prefix.
    """
    found = elements(key, prefix)
    enough = len(found) >= (len(types) if least is None else least)
    if not enough or len(found) > len(types) or not all(map(isinstance, found, types)):
        raise CorruptData(what="a key", problem=f"it has other elements: {found!r}")
    return found


def within(prefix: bytes) -> slice:
    """All keys that extend a packed prefix by whole elements."""
    return slice(prefix + b"\x00", prefix + b"\xff")
