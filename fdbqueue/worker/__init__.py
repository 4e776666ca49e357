"""Workers: processes that handle messages, woken and not polled."""

from ..values.verdicts import Reject, Retry, Snooze
from .worker import Worker

__all__ = ["Reject", "Retry", "Snooze", "Worker"]
