"""The tutorial's tea shop: takes orders."""

from typing import Any

import fdbqueue
from fdbqueue import Queue, fdb, transactional

db = fdbqueue.open()
orders = Queue.open(db, "tea-orders")
book = fdb.Subspace(("tea-shop",))


@transactional
def place(tr: fdb.Transaction, /, number: int, tea: str, **options: Any) -> str:
    """Write an order into the book, and enqueue it: one commit."""
    order = {"number": number, "tea": tea}
    tr[book.pack(("ordered", number))] = tea.encode()
    return orders.enqueue(tr, order, **options)
