"""What type checkers see of the package; at run time names are imported when first used."""

from . import consumers as consumers
from . import errors as errors
from . import metrics as metrics
from . import spark as spark
from .consumers.credit import Credit as Credit
from .consumers.line import Ticket as Ticket
from .queue.batch import Batch as Batch
from .queue.bulk.producer import Producer as Producer
from .queue.continuations.successors import context as context
from .queue.overview import list_queues as list_queues
from .queue.overview import survey as survey
from .queue.queue import Queue as Queue
from .queue.subscription import Subscription as Subscription
from .store.binding import describe as describe
from .store.binding import fdb as fdb
from .store.binding import open as open
from .store.binding import transactional as transactional
from .store.clocks import Clock as Clock
from .store.connection import Connection as Connection
from .values.groups import Then as Then
from .values.limits import Bounds as Bounds
from .values.limits import KeyLimits as KeyLimits
from .values.model import DeadMessage as DeadMessage
from .values.model import Delivery as Delivery
from .values.model import Depth as Depth
from .values.model import Enqueued as Enqueued
from .values.model import Event as Event
from .values.model import Failure as Failure
from .values.model import Headers as Headers
from .values.model import LeasedMessage as LeasedMessage
from .values.model import Message as Message
from .values.model import MessageState as MessageState
from .values.model import NewMessage as NewMessage
from .values.model import Progress as Progress
from .values.options import QueueOptions as QueueOptions
from .values.selector import Selector as Selector
from .values.serializers import Serializer as Serializer
from .values.states import State as State
from .values.verdicts import Reject as Reject
from .values.verdicts import Retry as Retry
from .values.verdicts import Snooze as Snooze
from .worker import Channel as Channel
from .worker import Worker as Worker
from .worker.terms import Fail as Fail
from .worker.terms import Run as Run
from .worker.terms import Take as Take

__all__: list[str]
__version__: str
