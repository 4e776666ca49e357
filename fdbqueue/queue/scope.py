"""What a storage operation works on: the keys and options of a queue, and the clocks."""

from __future__ import annotations

from dataclasses import dataclass

from ..clock import Clock
from ..codec import Envelope
from ..keys import QueueKeys
from ..model import Position
from ..options import QueueOptions
from .definitions import Definition


@dataclass(frozen=True, slots=True)
class Scope:
    """One queue as one transaction sees it."""

    keys: QueueKeys
    options: QueueOptions
    clock: Clock
    subscriptions: tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A message and where it stands."""

    position: Position
    envelope: Envelope
