"""A second reader and writer of what is stored, made from docs/format.md with plain MessagePack:
the page says enough for another language."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple, fields

from fdbqueue.errors import CorruptData
from fdbqueue.messages.run import pack_row
from fdbqueue.schema.consumers import Request
from fdbqueue.schema.envelope import Envelope
from fdbqueue.schema.leases import Lease
from fdbqueue.schema.records import DeadLetter
from fdbqueue.values.model import Position
from fdbqueue.values.options import QueueOptions

from . import test_format as vectors
from .test_codec import envelopes, positions

# -- the second reader ------------------------------------------------------------------------

FIELDS: dict[str, tuple[str, Any]] = {
    "r": ("priority", 4),
    "h": ("headers", {}),
    "a": ("attempts", 0),
    "i": ("id", None),
    "x": ("expires_at_ms", None),
    "m": ("max_attempts", None),
    "b": ("backoff", None),
    "e": ("last_error", None),
    "u": ("unique", None),
    "d": ("death", None),
    "c": ("content_type", "application/octet-stream"),
    "z": ("compression", ""),
    "w": ("raw_size", None),
    "n": ("chunks", b""),
    "y": ("chunk_bytes", 0),
    "k": ("key", None),
    "l": ("alone", 0),
    "q": ("released", 0),
    "K": ("former_key", None),
    "s": ("slot", None),
    "v": ("window", None),
    "V": ("last_value", None),
    "T": ("schedule", None),
    "C": ("cancelled", False),
    "R": ("keep_result_ms", None),
    "g": ("group", None),
    "L": ("limits", None),
    "M": ("former_limits", None),
    "S": ("slots", []),
    "D": ("deaths", 0),
    "f": ("failures", 0),
}
REQUIRED = {"p": "payload", "t": "enqueued_at_ms"}


def value(stored: bytes) -> Any:
    assert stored[0] == 1, "another version is refused"
    return msgpack.unpackb(stored[1:], strict_map_key=False)


def envelope(stored: bytes) -> dict[str, Any]:
    found = value(stored)
    assert found.keys() <= FIELDS.keys() | REQUIRED.keys()
    read = {name: found[letter] for letter, name in REQUIRED.items()}
    return read | {name: found.get(letter, default) for letter, (name, default) in FIELDS.items()}


def row(stored: bytes) -> list[dict[str, Any]]:
    """The messages of a row: an envelope, or a block."""
    if stored[:1] == b"\x42":
        return [envelope(each) for each in msgpack.unpackb(stored[1:])]
    return [envelope(stored)]


def written(read: dict[str, Any]) -> bytes:
    """The second writer; leaves out what is at its default."""
    stored = {letter: read[name] for letter, name in REQUIRED.items()}
    for letter, (name, default) in FIELDS.items():
        if read[name] != default:
            stored[letter] = read[name]
    return b"\x01" + bytes(msgpack.packb(stored))


# -- what it reads ----------------------------------------------------------------------------


def plain(made: Envelope) -> dict[str, Any]:
    """An envelope as the second reader sees it."""
    read = asdict(made) | {"slots": [*made.slots]}
    return read | {"death": None if made.death is None else [*astuple(made.death)]}


def page(name: str) -> bytes:
    """The value of a vector of the page."""
    return vectors.documented()[name][1]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("READY", [vectors.PLAIN]),
        ("READY, every field", [vectors.FULL]),
        ("READY, chunks", [vectors.CHUNKED]),
        ("READY, block", [vectors.PLAIN, vectors.PLAIN]),
    ],
)
def test_it_reads_the_messages_of_the_page(name: str, made: list[Envelope]) -> None:
    assert row(page(name)) == [plain(each) for each in made]


def test_every_field_of_the_page_is_tried() -> None:
    usual = {each.name for each in fields(Envelope)} - {"compression", "raw_size", "chunk_bytes"}
    assert usual - {"chunks"} <= {
        each.name for each in fields(Envelope) if getattr(vectors.FULL, each.name) != each.default
    }


AT = [5, 300, bytes.fromhex("00112233445566ff")]
TEA = page("READY")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "LEASE",
            [
                AT,
                90_000_000,
                1_700_000_030_000,
                "billing",
                TEA,
                True,
                bytes(range(16)),
                True,
                2,
                30_000,
            ],
        ),
        ("LEASE, planned", [AT, 0, 0, "billing", TEA, True, bytes(16), False, 1, 0]),
        ("DUE", [[5, 0, AT[2]], TEA]),
        ("DEAD", [AT, TEA, "rejected", 1_700_000_050_000]),
        (
            "META",
            [
                bytes(range(16)).hex(),
                QueueOptions(levels=3, paused=True).to_json(),
                None,
                [],
                [1_700_000_000_000, "ann"],
            ],
        ),
        ("SUBSCRIPTION", ["audit", "acquire", None, False, False]),
        ("STATE", [bytes(range(16)), 89_000_000]),
        ("BACKLOG", [1_700_000_000_000, [3, None, None]]),
        ("RATE", [1_700_000_000_600_000, [600_000, 20], [512, 1_700_000_000_600]]),
        ("CONSUMER", ["billing", 1, 1_700_000_000_000, 0, 0, ""]),
        ("LIMITS", {"concurrency": 5, "window": None, "weight": 3, "paused": True}),
        ("SINK", [1, 2, 100, 50, 49, [0, 1, 20], 1_700_000_000_000]),
        ("FAILURE", [1_700_000_000_000, 1_700_000_002_500, "billing", "no route", "Traceback …"]),
        ("RESULT", ["done", 1_700_000_100_000, "application/json", b"42", "", "", ""]),
    ],
)
def test_it_reads_the_records_of_the_page(name: str, wanted: object) -> None:
    assert value(page(name)) == wanted


def test_a_message_that_has_moved_is_found_by_the_key_that_is_stored() -> None:
    assert vectors.QUEUE.prefix + page("MOVED, ready") == vectors.documented()["READY"][0]


@given(envelopes)
def test_it_reads_what_is_written(made: Envelope) -> None:
    assert row(made.pack()) == [plain(made)]


@given(st.lists(envelopes, min_size=1, max_size=9))
def test_it_reads_blocks(made: list[Envelope]) -> None:
    assert row(pack_row([each.pack() for each in made])) == [plain(each) for each in made]


@given(envelopes)
def test_what_it_writes_is_read(made: Envelope) -> None:
    assert Envelope.unpack(written(plain(made))) == made


@given(positions, st.binary(max_size=9), st.booleans())
def test_what_it_writes_of_records_is_read(at: Position, packed: bytes, flag: bool) -> None:
    place = [at.level, at.index, at.random]
    assert DeadLetter.unpack(written_list([place, packed, "why", 1])) == DeadLetter(
        at, packed, "why", 1
    )
    lease: list[Any] = [place, 7, 8, "c", packed, flag, bytes(16), flag, 3, 4]
    assert Lease.unpack(written_list(lease)) == Lease(at, *lease[1:])
    request: list[Any] = [1, 30.0, "c", flag, flag, flag, packed, 0, None, 5, 9, flag, flag, flag]
    assert Request.unpack(written_list(request)) == Request(*request)


def written_list(stored: list[Any]) -> bytes:
    return b"\x01" + bytes(msgpack.packb(stored))


@pytest.mark.parametrize("letter", [*FIELDS, *REQUIRED])
def test_a_field_of_another_type_is_refused(letter: str) -> None:
    stored = {"p": b"", "r": 4, "t": 0, letter: [{"a": [1.5]}]}
    with pytest.raises(CorruptData):
        Envelope.unpack(b"\x01" + bytes(msgpack.packb(stored)))
