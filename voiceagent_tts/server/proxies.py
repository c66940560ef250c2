"""Which of the addresses in `X-Forwarded-For` count, behind proxies that are trusted."""

import ipaddress
import itertools
from collections.abc import Sequence
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_HEADER = b"x-forwarded-for"


class Proxies(ProxyHeadersMiddleware):
    """uvicorn's handling of proxies, which passes on only addresses that a proxy can have seen.

    uvicorn believes any word, of any length. Proxies append to the header, so what stands before a
    word that is no address may come from the client: without an address behind it, the
    connection's own counts.
    """

    def __init__(self, app: Any, trusted: Sequence[str]) -> None:
        super().__init__(app, list(trusted))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        values = [value for name, value in scope["headers"] if name == _HEADER]
        if values:
            others = [header for header in scope["headers"] if header[0] != _HEADER]
            named = _addresses_at_end(b",".join(values).decode("latin1").split(","))
            scope["headers"] = [*others, [_HEADER, ",".join(named).encode()]]
        await super().__call__(scope, receive, send)


def _addresses_at_end(words: list[str]) -> list[str]:
    last_first = itertools.takewhile(bool, map(_address, reversed(words)))
    return [*last_first][::-1]


def _address(word: str) -> str:
    """The address in a word, which may have a port; empty if there is none."""
    host = word.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return ""
