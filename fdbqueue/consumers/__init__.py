"""Consumers: waiting, waking, and the line."""

from .registry import Consumer

__all__ = ["Consumer"]
