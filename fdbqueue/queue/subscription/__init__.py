"""A subscription as users hold it."""

from .handle import Subscription

__all__ = ["Subscription"]
