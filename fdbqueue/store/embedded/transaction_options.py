"""Options of transactions and databases, by the numbers that the bindings pass."""

from __future__ import annotations

import struct

from .codes import (
    INVALID_OPERATION,
    INVALID_OPTION,
    INVALID_OPTION_VALUE,
    TAG_TOO_LONG,
    TOO_MANY_TAGS,
    Fault,
)

_INT_MAX = 2**31 - 1
_INTEGER = struct.Struct("<q")

TRANSACTION_SIZE_LIMIT = 10_000_000
DEFAULT_MAX_DELAY = 1.0
DEFAULT_WATCHES = 10_000
ABSOLUTE_WATCHES = 1_000_000
_MAX_TAGS = 5
_MAX_TAG_BYTES = 255

READ_YOUR_WRITES_DISABLE = 51
TIMEOUT = 500
RETRY_LIMIT = 501
MAX_RETRY_DELAY = 502
SIZE_LIMIT = 503
SNAPSHOT_READS_WRITES = 600
AUTHORIZATION_TOKEN = 2000
PERSISTENT = frozenset({TIMEOUT, RETRY_LIMIT, MAX_RETRY_DELAY, AUTHORIZATION_TOKEN})

_FLAGS = {
    30: "next_write_no_conflict",
    READ_YOUR_WRITES_DISABLE: "read_your_writes_disabled",
    302: "read_system_keys",
    701: "reuse_during_commit",
    712: "report_conflicting_keys",
    713: "special_keys_relaxed",
    714: "special_keys_writable",
    1100: "bypass_unreadable",
}
# Accepted, with nothing to do for a store in one file: priorities, caches, tracing, locks, quotas.
_IGNORED_FLAGS = frozenset(
    {10, 20, 21, 23, 40, 50, 52, 110, 120, 130, 200, 201, 303, 304, 400, 406, 505, 507, 508, 509}
    | {510, 511, 700, 710, 711, 1000, 1102}
)


class TransactionOptions:
    """The options of a transaction; a shared default is copied before a change."""

    changed = False
    """Whether an option was set that an operation must ask for."""
    bypass_unreadable = False
    identifier = b""
    lock_aware = False
    max_delay = DEFAULT_MAX_DELAY
    max_retries = -1
    next_write_no_conflict = False
    raw_access = False
    read_only = False
    read_system_keys = False
    read_your_writes_disabled = False
    report_conflicting_keys = False
    reuse_during_commit = False
    size_limit = TRANSACTION_SIZE_LIMIT
    # A count, because enabling twice outweighs disabling once.
    snapshot_reads_writes = 1
    special_keys_relaxed = False
    special_keys_writable = False
    tags: frozenset[bytes] = frozenset()
    timeout = 0.0
    write_system_keys = False

    def __init__(self) -> None:
        self._having: dict[int, TransactionOptions] = {}

    def having(self, option: int, value: bytes | None) -> TransactionOptions:
        """A copy with an option set; one for all that set the same.

        Raises:
            Fault: as ``set``.
        """
        found = self._having.get(option) if value is None else None
        if found is None:
            found = self.copy()
            found.set(option, value)
            if value is None:
                self._having[option] = found
        return found

    def copy(self) -> TransactionOptions:
        """A copy that may be changed."""
        copied = TransactionOptions()
        vars(copied).update(vars(self), _having={})
        return copied

    def set(self, option: int, value: bytes | None) -> None:
        """Set an option.

        Raises:
            Fault: the value is not one that the option takes.
        """
        # What is the default, or does nothing, leaves a transaction plain.
        if option != SNAPSHOT_READS_WRITES and option not in _IGNORED_FLAGS:
            self.changed = True
        if option in _FLAGS:
            _require_absent(value)
            setattr(self, _FLAGS[option], True)
            if option == 302:
                self.raw_access = True
        elif option == 301:
            _require_absent(value)
            self.read_system_keys = self.write_system_keys = self.raw_access = True
        elif option == 303:
            _require_absent(value)
            self.raw_access = True
        elif option in (SNAPSHOT_READS_WRITES, 601):
            _require_absent(value)
            self.snapshot_reads_writes += 1 if option == SNAPSHOT_READS_WRITES else -1
        elif option == TIMEOUT:
            self.timeout = integer(value, 0, _INT_MAX) / 1000
        elif option == RETRY_LIMIT:
            self.max_retries = integer(value, -1, _INT_MAX)
        elif option == MAX_RETRY_DELAY:
            self.max_delay = integer(value, 0, _INT_MAX) / 1000
        elif option == SIZE_LIMIT:
            self.size_limit = integer(value, 32, TRANSACTION_SIZE_LIMIT)
        elif option in (700, 702):
            _require_absent(value)
            # Awareness of read locks does not limit awareness of all locks.
            if option == 700:
                self.lock_aware = True
                self.read_only = False
            elif not self.lock_aware:
                self.lock_aware = self.read_only = True
        elif option in (800, 801):
            self._tag(value)
        else:
            self._set_tracing(option, value)

    def _tag(self, value: bytes | None) -> None:
        if value is None:
            raise Fault(INVALID_OPTION_VALUE)
        if len(value) > _MAX_TAG_BYTES:
            raise Fault(TAG_TOO_LONG)
        tags = self.tags | {value}
        if len(tags) > _MAX_TAGS:
            raise Fault(TOO_MANY_TAGS)
        self.tags = tags

    def _set_tracing(self, option: int, value: bytes | None) -> None:
        if option in (402, 403):
            if value is None or not 0 < len(value) <= 100:
                raise Fault(INVALID_OPTION_VALUE)
            if self.identifier not in (b"", value):
                raise Fault(INVALID_OPERATION)
            self.identifier = value
        elif option == 404:
            _require_absent(value)
            if not self.identifier:
                raise Fault(INVALID_OPERATION)
        elif option == 405:
            if integer(value, -1, _INT_MAX) == 0:
                raise Fault(INVALID_OPTION_VALUE)
        elif option == 504:
            if value is None:
                raise Fault(INVALID_OPTION_VALUE)
            if not 16 <= len(value) < 256:
                raise Fault(INVALID_OPTION)
        elif option == 900:
            if value is None or len(value) != 33:
                raise Fault(INVALID_OPTION_VALUE)
        elif option == 1101:
            raise Fault(INVALID_OPTION)
        elif option in _IGNORED_FLAGS and option not in (507, 508, 509, 510, 511, 304):
            _require_absent(value)


KNOWN_TRANSACTION_OPTIONS = (
    frozenset(_FLAGS)
    | _IGNORED_FLAGS
    | PERSISTENT
    | {301, SIZE_LIMIT, 504, SNAPSHOT_READS_WRITES, 601, 702, 800, 801, 900, 1101}
    | {401, 402, 403, 404, 405}
)

# Database options that are the default of a transaction option.
TRANSACTION_DEFAULTS = {
    405: 405,
    500: 500,
    501: 501,
    502: 502,
    503: 503,
    504: 20,
    505: 23,
    506: 505,
    700: 1100,
    701: 701,
    702: 712,
}
MAX_WATCHES = 20
KNOWN_DATABASE_OPTIONS = (
    frozenset(TRANSACTION_DEFAULTS)
    | {10, MAX_WATCHES, 21, 22, 26, 27}
    | {
        800,
        900,
    }
)


def integer(value: bytes | None, low: int, high: int) -> int:
    """An option's integer, which must be in a range."""
    if value is None or len(value) != _INTEGER.size:
        raise Fault(INVALID_OPTION_VALUE)
    number: int = _INTEGER.unpack(value)[0]
    if not low <= number <= high:
        raise Fault(INVALID_OPTION_VALUE)
    return number


def _require_absent(value: bytes | None) -> None:
    if value:
        raise Fault(INVALID_OPTION_VALUE)
