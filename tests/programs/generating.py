"""Makes programs at random: few keys, close together, so that what is done meets.

Rounds of two kinds alternate. A free round lets several transactions do anything. A question looks
for the exact bounds of a conflict: a transaction reads something, another one writes one key or
range and commits, and whether the first one can commit then tells what its read depended on.
"""

from __future__ import annotations

import random
from typing import Any

from .running import Program, Step

KEYS = ("", "a", "a\0", "aa", "b", "b\0", "ba", "c", "d", "\xfe", "\xfe\xff")
ENDS = (*KEYS, "\xff")
EDGES = ("", "a", "\xfe\xff", "\xfe\xff\xff")
BEYOND = ("\xff", "\xff\0", "\xff\xff/status", "\xff\xffx")
SHORT = ("", "\0", "\1", "\xff", "\2\0", "\xff\xff", "b", "abc", "abd")
WORDS = ("\1\0\0\0\0\0\0\0", "\xff" * 8, "\0\0\0\x80", "\xff\xff\xff\x7f")
VALUES = (*SHORT, *WORDS, "12345678901234567890")
NUMERIC = ("add", "bit_and", "bit_or", "bit_xor", "max", "min")
ATOMIC = (*NUMERIC, "byte_max", "byte_min", "append_if_fits")
MODES = ("want_all", "iterator", "small", "exact", "serial")
OPTIONS: tuple[tuple[Any, ...], ...] = (
    ("read_your_writes_disable",),
    ("snapshot_ryw_disable",),
    ("snapshot_ryw_disable",),
    ("snapshot_ryw_enable",),
    ("next_write_no_write_conflict_range",),
    ("next_write_no_write_conflict_range",),
    ("bypass_unreadable",),
    ("causal_read_risky",),
    ("causal_write_risky",),
    ("size_limit", 32),
    ("retry_limit", 1),
    ("retry_limit", 0),
    ("max_retry_delay", 1),
)
LENGTH = 45
OTHERS = 3
"""How many transactions there are; one more looks at what they left."""


def program(seed: int) -> Program:
    """The program of a seed, always the same."""
    return _Maker(random.Random(f"program {seed}")).program()


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.pick = chance.choice

    def program(self) -> Program:
        steps = self.data()
        while len(steps) < LENGTH:
            steps += self.question() if self.chance.random() < 0.6 else self.free()
        last = list(range(OTHERS))
        self.chance.shuffle(last)
        steps += [[number, "commit"] for number in last]
        everything = [["", False, 1], ["\xff", False, 1], 0, False, "want_all"]
        return [*steps, [OTHERS, "read", "range", False, *everything]]

    def data(self) -> Program:
        """What is there at first."""
        stored = [key for key in KEYS if self.chance.random() < 0.4]
        return [*([0, "write", "set", key, self.value()] for key in stored), *self.ended(0)]

    @staticmethod
    def ended(number: int) -> Program:
        return [[number, "commit"], [number, "begin"]]

    # -- rounds -----------------------------------------------------------------------------

    def question(self) -> Program:
        """Does a read, beside some own writes, depend on what another transaction writes?"""
        one, other = self.chance.sample(range(OTHERS), 2)
        steps: Program = [[one, "begin"], [other, "begin"], [one, "pin"]]
        steps += [self.option(one)] if self.chance.random() < 0.15 else []
        steps += [self.write(one) for _ in range(self.pick((0, 0, 1, 2, 3)))]
        at_edge = self.chance.random() < 0.2
        if at_edge:
            steps += [self.read_at_edge(one)]
        else:
            steps += [self.read(one)] if self.chance.random() < 0.85 else [self.conflict(one)]
        steps += [self.write(one)] if self.chance.random() < 0.15 else []
        steps += self.compared(one) if self.chance.random() < 0.1 else []
        if self.chance.random() < 0.1:
            steps += [[other, "option", "next_write_no_write_conflict_range"]]
        steps += [self.write_at_edge(other) if at_edge else self.write(other), *self.ended(other)]
        steps += [self.read(one)] if self.chance.random() < 0.3 else []
        steps += [[one, "write", "set", self.key(), self.value()]]
        return [*steps, *self.ended(one)]

    def free(self) -> Program:
        """Several transactions, in any order."""
        steps = [self.anything(self.chance.randrange(OTHERS)) for _ in range(self.pick((3, 6, 10)))]
        if self.chance.random() < 0.4:
            number = self.chance.randrange(OTHERS)
            begun, ended = sorted(self.chance.choices(range(len(steps)), k=2))
            steps.insert(ended, [number, "wait"])
            steps.insert(begun, [number, "issue", *self.reading()])
        return steps

    def anything(self, number: int) -> Step:
        kinds: list[tuple[Any, int]] = [
            (self.read, 30),
            (self.write, 30),
            (self.conflict, 4),
            (self.option, 3),
            (self.ending, 16),
            (self.strange, 4),
        ]
        (kind,) = self.chance.choices([each for each, _ in kinds], [odds for _, odds in kinds])
        step: Step = kind(number)
        return step

    # -- steps ------------------------------------------------------------------------------

    def key(self) -> str:
        return self.pick(KEYS)

    def value(self) -> str:
        return self.pick(VALUES)

    def range(self) -> list[str]:
        ends = [self.key(), self.pick(ENDS)]
        # Now and then the wrong way around.
        return ends if self.chance.random() < 0.05 else sorted(ends)

    def selector(self, near: bool = False) -> list[Any]:
        offset = self.pick((1, 1, 1, 0, 0, 2, -1) if near else (-9, -3, -1, 0, 0, 1, 1, 2, 3, 9))
        return [self.pick(ENDS), self.chance.random() < 0.4, offset]

    def read(self, number: int) -> Step:
        return [number, "read", *self.reading()]

    def reading(self) -> list[Any]:
        snapshot = self.chance.random() < 0.2
        name = self.pick(("get", "key", "range", "range", "range"))
        if name == "get":
            return [name, snapshot, self.key()]
        if name == "key":
            return [name, snapshot, self.selector()]
        ends = [self.selector(near=True), self.selector(near=True)]
        if self.chance.random() < 0.9:
            ends.sort(key=lambda each: str(each[0]))
        if self.chance.random() < 0.4:
            ends = [[key, False, 1] for key, _, _ in ends]
        mode = self.pick(MODES)
        limit = self.pick((1, 1, 2, 3, 20) if mode == "exact" else (0, 0, 1, 1, 2, 3, 20))
        return [name, snapshot, *ends, limit, self.chance.random() < 0.5, mode]

    def read_at_edge(self, number: int) -> Step:
        """A range one of whose ends lies so far that it is beyond all keys, or nearly."""
        ends = [self.selector(near=True), self.selector(near=True)]
        if self.chance.random() < 0.6:
            ends[1] = [self.key(), False, self.pick((2, 3, 5, 9))]
        else:
            ends[0] = [self.key(), False, self.pick((-9, -5, -2, -1))]
        limit, mode = self.pick((0, 0, 1, 2, 20)), self.pick(("want_all", "iterator"))
        return [number, "read", "range", False, *ends, limit, self.chance.random() < 0.6, mode]

    def write_at_edge(self, number: int) -> Step:
        name = self.pick(("set", "set", "clear"))
        value = [self.value()] if name == "set" else []
        return [number, "write", name, self.pick(EDGES), *value]

    def write(self, number: int) -> Step:
        kind = self.chance.random()
        if kind < 0.3:
            return [number, "write", "set", self.key(), self.value()]
        if kind < 0.45:
            return [number, "write", "clear", self.key()]
        if kind < 0.6:
            return [number, "write", "clear_range", *self.range()]
        if kind < 0.94:
            return [number, "write", self.pick(ATOMIC), self.key(), self.value()]
        if kind < 0.97:
            return [number, "stamp_key", self.key(), self.pick(("", "x")), self.value()]
        return [number, "stamp_value", self.key(), self.pick(("", "x")), self.pick(("", "y"))]

    def compared(self, number: int) -> Program:
        """Where a key may be cleared, the bindings' client takes it for there when it counts keys:
        so nothing but that key is read afterwards."""
        key = self.key()
        steps: Program = [[number, "write", "compare_and_clear", key, self.value()]]
        return [*steps, [number, "read", "get", False, key], *self.ended(number)]

    def conflict(self, number: int) -> Step:
        return [number, "conflict", self.pick(("read", "write")), *self.range()]

    def option(self, number: int) -> Step:
        return [number, "option", *self.pick(OPTIONS)]

    def ending(self, number: int) -> Step:
        other = self.pick([each for each in range(OTHERS) if each != number])
        return self.pick(
            (
                *[[number, "commit"]] * 8,
                *[[number, "begin"]] * 6,
                [number, "reset"],
                [number, "cancel"],
                [number, "on_error", self.pick((1020, 1020, 1007, 1021, 2000))],
                [number, "at", other],
                [number, "at", other],
            )
        )

    def strange(self, number: int) -> Step:
        """What is refused, and what is close to it."""
        beyond = self.pick(BEYOND)
        return self.pick(
            (
                [number, "write", "set", beyond, "x"],
                [number, "write", "clear", beyond],
                [number, "write", "clear_range", self.key(), self.pick((*BEYOND, "\xff"))],
                [number, "read", "get", False, self.pick(("\xff", "\xff\0"))],
                [number, "read", "key", False, [beyond, False, self.pick((-1, 0, 1, 2))]],
                [number, "conflict", "read", self.key(), beyond],
                [number, "conflict", "write", self.key(), beyond],
                [number, "fill", self.key(), self.pick((99_999, 100_000, 100_001))],
                [number, "write", "set", "k" * self.pick((10_000, 10_001)), "x"],
                [number, "write", "append_if_fits", self.key(), "yy"],
                [number, "pin"],
            )
        )
