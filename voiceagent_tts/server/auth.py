"""Who may come in: API keys and web origins, decided before any upgrade or work.

Keys are compared as hashes, all of them, without an early exit. Knows no users and no rights.
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
    """Let a request pass, or say why not.

    Args:
        settings: whose keys and origins count.
        headers: the request's, with names in lower case or case-insensitive.
        subprotocols: offered with a WebSocket; browsers, which cannot set headers, send their key
            as `bearer.KEY` among them.
        query_key: a key from the address, where a route's clients send it there.

    Raises:
        UnauthorizedError: with code `unauthorized` (401) or, for the origin, `forbidden` (403).
    """
    _check_origin(settings, headers)
    if settings.api_keys:
        _check_key(settings, _key_of(headers, subprotocols) or query_key)


def _check_origin(settings: Settings, headers: Mapping[str, str]) -> None:
    # WebSockets are not under the browser's same-origin rule: only this check stops a web page
    # from speaking through its visitor's server.
    origin = headers.get("origin")
    if origin is None or origin in settings.allowed_origins:
        return
    if not _is_own(settings, origin, headers.get("host")):
        raise UnauthorizedError(
            "this origin may not connect; add it to allowed_origins", code=ErrorCode.FORBIDDEN
        )


def _is_own(settings: Settings, origin: str, host: str | None) -> bool:
    """Whether a page of `origin` came from this server.

    A name of somebody else's may be made to point here, so that page and request agree on it (DNS
    rebinding): a server without keys, on loopback, believes in loopback's names alone.
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
