"""Workers: processes that handle messages, woken and not polled."""

from ..values.verdicts import Reject, Retry, Snooze
from .channel import Channel
from .worker import Worker

__all__ = ["Channel", "Reject", "Retry", "Snooze", "Worker"]
