"""A subscription as users hold it."""

from .subscription_handle import Subscription

__all__ = ["Subscription"]
