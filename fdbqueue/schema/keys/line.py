"""The keys of one line."""

from __future__ import annotations

from ...store.client import pack_bytes, pack_int, parse_int, parse_last_bytes


class LineKeys:
    """The keys of the line of a queue, or of one of its subscriptions.

    led: until when its leader leads. leader: who that is. requests: all requests, in their order.
    """

    __slots__ = ("_request", "leader", "led", "requests")

    def __init__(self, led: bytes, request: bytes) -> None:
        self.led = led
        self.leader = led + pack_int(0)
        self._request = request
        # Where the two share a prefix, the requests follow the leader.
        begin = self.leader if request == led else request
        self.requests = slice(begin + b"\x00", request + b"\xff")

    def request(self, index: int, claim: bytes) -> bytes:
        """(..., index, claim)."""
        return self._request + pack_int(index) + pack_bytes(claim)

    def parse_request(self, key: bytes) -> tuple[int, bytes]:
        """The index and the claim of a request."""
        index, begin = parse_int(key, len(self._request))
        return index, parse_last_bytes(key, begin)
