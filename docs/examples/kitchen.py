"""The tutorial's tea shop: packs what was ordered."""

from typing import Any

from shop import book, db, orders

from fdbqueue import Worker, fdb

worker = Worker(db, concurrency=4)


@worker.handler(orders)
def pack(tr: fdb.Transaction, order: dict[str, Any]) -> None:
    """Take a pound from the stock, and note that the order is packed: one commit."""
    tr.add(book.pack(("used", order["tea"])), (1).to_bytes(8, "little"))
    tr[book.pack(("packed", order["number"]))] = b""
