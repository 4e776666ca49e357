"""Whether a worker lives, and is ready: what probes ask, what answers them, and systemd."""

from .loops import Loop
from .notices import Notices
from .probe_server import Address, Server, check_address, url
from .probes import Probes, routes
from .systemd import Systemd

__all__ = [
    "Address",
    "Loop",
    "Notices",
    "Probes",
    "Server",
    "Systemd",
    "check_address",
    "routes",
    "url",
]
