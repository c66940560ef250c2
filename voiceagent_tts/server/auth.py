"""Access control: API keys and web origins, checked before any WebSocket upgrade or work.

A key is compared as a hash, with every known key and without an early exit. This module knows no
users and no permissions.
"""

import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from voiceagent_tts.config import LOOPBACK, Settings, hash_key
from voiceagent_tts.errors import ErrorCode, UnauthorizedError

_BEARER_SUBPROTOCOL = "bearer."
_SCHEMES = ("bearer", "api-key")  # the second is Baseten's


def check(
    settings: Settings,
    headers: Mapping[str, str],
    subprotocols: Iterable[str] = (),
    query_key: str | None = None,
) -> None:
    """Check the origin and the key of a request.

    Args:
        settings: the known keys and origins.
        headers: headers of the request, with names in lower case or case-insensitive.
        subprotocols: offered subprotocols of a WebSocket; browsers cannot set headers and send
            their key as subprotocol `bearer.KEY`.
        query_key: a key from the address, on routes whose clients send it there.

    Raises:
        UnauthorizedError: with code `unauthorized` (401) or, for the origin, `forbidden` (403).
    """
    _check_origin(settings, headers)
    if settings.api_keys:
        _check_key(settings, _key_of(headers, subprotocols) or query_key)


def _check_origin(settings: Settings, headers: Mapping[str, str]) -> None:
    # The browser's same-origin policy does not cover WebSockets. Only this check stops a web page
    # from using a server that its visitor can reach.
    origin = headers.get("origin")
    if origin is None or origin in settings.allowed_origins:
        return
    if not _is_own(settings, origin, headers.get("host")):
        raise UnauthorizedError(
            "this origin is not allowed; add it to allowed_origins", code=ErrorCode.FORBIDDEN
        )


def _is_own(settings: Settings, origin: str, host: str | None) -> bool:
    """Whether a page of `origin` was loaded from this server.

    A foreign domain name can be made to resolve to this server, so that the page's origin equals
    the request's host (DNS rebinding). So a server on loopback without keys accepts only the names
    of loopback.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_open = settings.is_loopback and not settings.api_keys
    return parts.netloc == host and (not is_open or parts.hostname in LOOPBACK)


def _key_of(headers: Mapping[str, str], subprotocols: Iterable[str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES:
        return key.strip()
    if key := headers.get("x-api-key"):
        return key
    for subprotocol in subprotocols:
        if subprotocol.startswith(_BEARER_SUBPROTOCOL):
            return subprotocol.removeprefix(_BEARER_SUBPROTOCOL)
    return None


def _check_key(settings: Settings, key: str | None) -> None:
    offered = hash_key(key or "")
    matches = [hmac.compare_digest(offered, known) for known in settings.api_keys]
    if key is None or not any(matches):
        raise UnauthorizedError(
            "expected an API key: `Authorization: Bearer KEY`, `X-API-Key: KEY`, or the "
            "WebSocket subprotocol `bearer.KEY`"
        )
