"""Receiving: attempts to take messages at once, and waiting in line for them."""

from .access import Access, Accesses
from .receive import accesses, receive, receive_in
from .try_receive import checked_request
from .waiting import collect, withdraw

__all__ = [
    "Access",
    "Accesses",
    "accesses",
    "checked_request",
    "collect",
    "receive",
    "receive_in",
    "withdraw",
]
