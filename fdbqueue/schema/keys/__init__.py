"""Where everything is stored: building and parsing keys.

One queue is one subspace. The first element of a key is its kind, a small integer, so that keys
stay short; ``Kind`` lists the elements that follow it. ``codec`` describes the values.
"""

from .kinds import Kind, KindKeys, within
from .levels import LevelKeys
from .line import LineKeys
from .once import OnceKeys
from .queue import CLAIM_BYTES, LOWEST, QueueKeys
from .root import DEFAULT_ROOT, RootKeys
from .slots import SlotKeys

__all__ = [
    "CLAIM_BYTES",
    "DEFAULT_ROOT",
    "LOWEST",
    "Kind",
    "KindKeys",
    "LevelKeys",
    "LineKeys",
    "OnceKeys",
    "QueueKeys",
    "RootKeys",
    "SlotKeys",
    "within",
]
