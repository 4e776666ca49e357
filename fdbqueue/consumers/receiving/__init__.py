"""Receiving: attempts to take messages at once, and waiting in line for them."""

from .access import Access, Accesses
from .attempt import checked_demand
from .receive import receive, receive_in
from .waiting import collect, withdraw

__all__ = ["Access", "Accesses", "checked_demand", "collect", "receive", "receive_in", "withdraw"]
