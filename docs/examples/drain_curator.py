"""Drains a queue of Curator, in ZooKeeper, into a queue of fdbqueue.

Usage: drain_curator.py KIND HOSTS PATH QUEUE

KIND is the class that wrote the queue: queue, priority, delay, id or simple. Needs kazoo. Stop the
queue's consumers before. Begin again after any interruption: each item is enqueued once.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import fdbqueue
from fdbqueue import NewMessage, Queue

MAX_NODES = 250
MAX_BYTES = 1_000_000
MAX_ITEMS = 10_000
"""What one transaction takes: their sequence numbers fit in the place of an import."""
SEQUENCE = r"(?P<sequence>-?\d{10})"
NODES = {
    "queue": re.compile(f"queue-{SEQUENCE}"),
    "priority": re.compile(f"queue-(?P<sign>[01])(?P<priority>[0-9A-F]{{8}}){SEQUENCE}"),
    "delay": re.compile(rf"queue-\|(?P<until>[0-9A-F]+)\|{SEQUENCE}"),
    "id": re.compile(rf"queue-\|(?P<id>.+)\|{SEQUENCE}"),
    "simple": re.compile(f"qn-{SEQUENCE}"),
}
"""The names that the classes give to nodes."""
REQUEUED = {"priority", "delay"}
"""Classes that give a failed item the name of a plain one when they requeue it, and then hand it
over before all others: it has lost its priority, or its delay."""
FIRST = -(1 << 31) - 1


class Reader(Protocol):
    """What the drain needs of ZooKeeper: three methods of ``kazoo.client.KazooClient``."""

    def get_children(self, path: str) -> list[str]: ...
    def get(self, path: str) -> tuple[bytes, Any]: ...
    def delete(self, path: str) -> Any: ...


class Node(NamedTuple):
    """A node of the queue. Nodes sort in the order in which Curator hands them over."""

    place: int
    sequence: int
    name: str
    fields: dict[str, Any]


class Read(NamedTuple):
    """A node that was read. ``created`` tells it from an earlier node of the same name."""

    node: Node
    created: int
    items: list[bytes]
    size: int


def higher_first(number: int) -> int:
    """Curator's priorities 0 to 9, of which the lowest comes first, as those of fdbqueue."""
    return min(9, max(0, 9 - number))


def drain(
    zk: Reader,
    path: str,
    kind: str,
    db: fdbqueue.fdb.Database,
    queue: Queue,
    priority: Callable[[int], int] = higher_first,
) -> list[str]:
    """Drain a queue until it is empty; returns the names of nodes that it cannot read.

    priority: of a message, for a priority of Curator.

    Each transaction enqueues a batch of nodes, and stores which nodes these are. Then they are
    deleted. A drain that begins again first deletes what is left of the batch enqueued last.
    """
    progress = queue.streams.importer(f"curator {path}")
    stored = progress.place(db)
    known = json.loads(stored or b"{}")
    for node in _nodes(zk.get_children(path), kind, priority):
        if str(node.sequence) in known:
            at = f"{path}/{node.name}"
            if zk.get(at)[1].czxid == known[str(node.sequence)]:
                zk.delete(at)
    unreadable: set[str] = set()
    while True:
        names = set(zk.get_children(path)) - unreadable
        nodes = _nodes(names, kind, priority)
        if not nodes:
            return sorted(names | unreadable)
        for batch in _batches(_read(zk, path, kind, nodes, unreadable)):
            messages = [
                NewMessage(item, **each.node.fields) for each in batch for item in each.items
            ]
            if messages:
                until = json.dumps({each.node.sequence: each.created for each in batch}).encode()
                progress.enqueue(db, messages, since=stored, until=until)
                stored = until
            for each in batch:
                zk.delete(f"{path}/{each.node.name}")


def _nodes(names: Iterable[str], kind: str, priority: Callable[[int], int]) -> list[Node]:
    """The nodes of the queue among some names, in their order."""
    nodes = []
    for name in names:
        found = NODES[kind].fullmatch(name)
        if not found and kind in REQUEUED:
            found = NODES["queue"].fullmatch(name)
        if found:
            place, fields = _fields(kind, found, priority)
            nodes.append(Node(place, int(found["sequence"]), name, fields))
    return sorted(nodes, key=lambda node: node[:3])


def _read(
    zk: Reader, path: str, kind: str, nodes: Iterable[Node], unreadable: set[str]
) -> Iterator[Read]:
    for node in nodes:
        value, stat = zk.get(f"{path}/{node.name}")
        try:
            items = [value] if kind == "simple" else _items(value)
        except (ValueError, struct.error):
            unreadable.add(node.name)
        else:
            yield Read(node, stat.czxid, items, len(value))


def _batches(found: Iterable[Read]) -> Iterator[list[Read]]:
    """Nodes in batches that fit in a transaction."""
    batch: list[Read] = []
    for each in found:
        together = [*batch, each]
        if batch and (
            len(together) > MAX_NODES
            or sum(one.size for one in together) > MAX_BYTES
            or sum(len(one.items) for one in together) > MAX_ITEMS
        ):
            yield batch
            together = [each]
        batch = together
    if batch:
        yield batch


def _fields(
    kind: str, found: re.Match[str], priority: Callable[[int], int]
) -> tuple[int, dict[str, Any]]:
    """What comes before the sequence number in the order, and what the message gets of the name."""
    if kind in REQUEUED and found.re == NODES["queue"]:
        return FIRST, {"priority": 9}
    if kind == "priority":
        number = int(found["priority"], 16) - (0 if found["sign"] == "1" else 1 << 32)
        return number, {"priority": priority(number)}
    if kind == "delay":
        until = int(found["until"], 16)
        return until, {"at": datetime.fromtimestamp(until / 1000, UTC)}
    if kind == "id":
        return 0, {"headers": {"item_id": found["id"]}}
    return 0, {}


def _items(value: bytes) -> list[bytes]:
    """The items of a node: a version, each item with its length, and an end."""
    if value[:4] != b"\x00\x01\x00\x01":
        raise ValueError(value[:4])
    items = []
    place = 4
    while value[place : place + 1] == b"\x01":
        (size,) = struct.unpack_from(">I", value, place + 1)
        place += 5 + size
        items.append(value[place - size : place])
    if value[place:] != b"\x02":
        raise ValueError(value[place:])
    return items


def main(kind: str, hosts: str, path: str, name: str) -> None:
    """Drain, and tell which nodes are left."""
    from kazoo.client import KazooClient

    zk = KazooClient(hosts)
    zk.start()
    try:
        db = fdbqueue.open()
        for left in drain(zk, path, kind, db, Queue.open(db, name)):
            print(f"left behind, since it cannot be read: {path}/{left}")
    finally:
        zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
