"""Receiving: the attempt to take messages at once, and standing in line for them.

What waits lives here, outside of the storage operations.
"""

from .attempt import Access, asking, take
from .receive import receive, receive_in
from .waiting import collect, withdraw

__all__ = ["Access", "asking", "collect", "receive", "receive_in", "take", "withdraw"]
