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


def start_over() -> None:
    """Empty the book and the queue, whatever an earlier try has left there."""
    orders.admin.sweep(db)  # forgets workers that were killed
    assert not orders.admin.consumers(db), "a worker takes the orders: stop it with Ctrl-C"
    del db[book.range()]
    orders.delete(db)
    Queue.open(db, "tea-orders")
