"""Who sends requests, and the audit log of who has changed keys, voices or the cache."""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request."""

    ip: str  # address of the client
    key_id: str | None = None  # id of its key; None on a server without keys

    @property
    def owner(self) -> str:
        """Whose the request is: the key's, or without one the address's."""
        return self.key_id or network_of(self.ip)


def network_of(ip: str) -> str:
    """The part of an address that one client has: an IPv4 address, or the /64 of IPv6."""
    try:
        address = ip_address(ip)
    except ValueError:
        return ip[:64]  # a Unix socket has none
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address.packed[:8] + bytes(8), 64)))
    return str(address)


def audit(event: str, **fields: Any) -> None:
    """Log a change: a line of the log with `audit: true`."""
    _log.info(event, audit=True, **fields)
