"""Names of hosts in requests.

A page of the web may make a browser send requests to this machine or its network, under a name that
the page controls (DNS rebinding), and read the answers. So whatever answers looks at the name.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
INNER_DOMAINS = (".localhost", ".local", ".internal", ".svc")
"""What nobody can register."""


def host_name(header: str) -> str:
    """The name in a ``Host`` header or an address, without its port; empty if there is none."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_inner(name: str) -> bool:
    """Whether no page of the web can have this name: an address, a name without a dot, or one below
    ``INNER_DOMAINS``."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(INNER_DOMAINS)
    return True
