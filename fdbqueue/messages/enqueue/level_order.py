"""Which messages a queue that goes by a header can order."""

from __future__ import annotations

from ...errors import InvalidArgument, InvalidInput
from ...schema.envelope import Envelope
from ...schema.keys import MAX_SORTED_BYTES, sorted_length
from ...values.limits import Gate
from ...values.model import Headers
from ...values.options import QueueOptions

MAX_VALUE_BYTES = 1_000
"""The longest value of which a queue keeps the last message, as a key has it."""


def check_sortable(options: QueueOptions, headers: Headers, gate: Gate | None) -> None:
    """Raise ``InvalidArgument`` if a queue cannot order such a message."""
    if gate is not None:
        of_key = isinstance(gate, str)
        raise InvalidArgument(
            argument="key" if of_key else "limits",
            value=gate,
            problem="a queue with sort or last_value takes no messages with a "
            + ("key" if of_key else "limit"),
        )
    most = ((options.sort, MAX_SORTED_BYTES), (options.last_value, MAX_VALUE_BYTES))
    for header, limit in most:
        if header is not None and (size := sorted_length(headers.get(header))) > limit:
            raise InvalidArgument(
                argument="headers",
                value=header,
                problem=f"the queue goes by it, so its value may have {limit:,} bytes in a key, "
                f"not {size:,}",
            )


def takes(options: QueueOptions, envelope: Envelope) -> bool:
    """Whether ``check_sortable`` lets a message in, once it has lost its key and limits."""
    try:
        check_sortable(options, envelope.headers, None)
    except InvalidInput:
        return False
    return True
