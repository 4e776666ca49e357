"""Whether a worker lives, and is ready: what probes ask, and what answers them."""

from .loops import Loop
from .probes import Probes, routes
from .server import Address, Server, check_address, url

__all__ = ["Address", "Loop", "Probes", "Server", "check_address", "routes", "url"]
