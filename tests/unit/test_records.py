"""Records are what frozen dataclasses with slots are."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from fdbqueue.values.records import record


@dataclass(frozen=True, slots=True)
class Usual:
    """A point."""

    x: int
    y: float = 2.0
    label: str = field(default="", repr=False, compare=False)
    tags: list[str] = field(default_factory=list, hash=False)


@record
class Made:
    """A point."""

    x: int
    y: float = 2.0
    label: str = field(default="", repr=False, compare=False)
    tags: list[str] = field(default_factory=list, hash=False)


@record
class Checked:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


@record
class Empty:
    pass


def test_a_record_shows_compares_and_hashes_like_a_dataclass() -> None:
    cases: list[dict[str, Any]] = [
        {"x": 1},
        {"x": 1, "y": 3.0, "label": "a"},
        {"x": 2, "tags": ["a"]},
    ]
    for given in cases:
        usual, made = Usual(**given), Made(**given)
        assert repr(made) == repr(usual).replace("Usual", "Made")
        assert asdict(made) == asdict(usual)
        assert hash(made) == hash(usual)
        assert made == replace(made, label="b")
        assert made != replace(made, x=-1)
        assert made != object()
    assert Made(1).tags is not Made(1).tags
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"
    assert hash(Empty()) == hash(())


def test_a_record_has_the_signature_fields_and_slots_of_a_dataclass() -> None:
    assert [each.name for each in fields(Made)] == [each.name for each in fields(Usual)]
    assert [*inspect.signature(Made).parameters] == [*inspect.signature(Usual).parameters]
    assert Made.__slots__ == Usual.__slots__  # type: ignore[attr-defined]
    assert Made.__match_args__ == Usual.__match_args__
    assert Made.__doc__ == "A point."
    with pytest.raises(TypeError, match=r"Made.__init__\(\) missing 1 required"):
        Made()  # type: ignore[call-arg]


def test_a_record_cannot_be_changed() -> None:
    made: Any = Made(1)
    with pytest.raises(FrozenInstanceError, match="'x'"):
        made.x = 2
    with pytest.raises(FrozenInstanceError, match="'new'"):
        made.new = 2
    with pytest.raises(FrozenInstanceError, match="'x'"):
        del made.x


def test_a_record_can_be_pickled_and_copied() -> None:
    made = Made(1, 3.0, "a", ["b"])
    for same in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert same == made
        assert same.label == "a"
    assert copy.copy(Empty()) == Empty()


def test_a_record_can_check_itself_and_be_inherited_from() -> None:
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)

    @dataclass(frozen=True)
    class Labelled(Checked):
        label: str

    assert Labelled(1, "a") == Labelled(1, "a")
    with pytest.raises(ValueError, match="negative"):
        replace(Labelled(1, "a"), x=-1)
