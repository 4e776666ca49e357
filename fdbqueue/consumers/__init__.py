"""Who consumes: the consumers that wait, and how they are woken."""

from .registry import Consumer

__all__ = ["Consumer"]
