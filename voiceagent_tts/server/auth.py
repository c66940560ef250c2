"""Access control: API keys, their scopes, and web origins, checked before any upgrade or work."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from voiceagent_tts.access.key_ring import KeyRing
from voiceagent_tts.access.keys import Caller, Key, Scope
from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, UnauthorizedError
from voiceagent_tts.settings.network import LOOPBACK

_BEARER_SUBPROTOCOL = "bearer."
_SCHEMES = ("bearer", "api-key")  # the second is Baseten's
_CALLER = "voiceagent_tts.caller"

_ANY_SCOPE = ("/v1/usage", "/openapi.json")
"""Paths that every key may read; `/v1/usage` shows a key its own usage."""


def scope_of(method: str, path: str) -> Scope | None:
    """Return the scope that a route needs; None if any key will do.

    Paths that are not named here need `speak`, also those that do not exist.
    """
    if path in ("/metrics", "/v1/cache"):
        return Scope.ADMIN
    if path.startswith("/v1/audio/voice") and (method, path) != ("GET", "/v1/audio/voices"):
        return Scope.VOICES_WRITE
    return None if path in _ANY_SCOPE else Scope.SPEAK


def check(
    settings: Settings, keys: KeyRing, request: AsgiScope, query_key: str | None = None
) -> Caller:
    """Check the origin, the key and its scope; note the caller in the request.

    Args:
        settings: the known origins.
        keys: the known keys.
        request: an HTTP request or the handshake of a WebSocket. Browsers cannot set headers of a
            WebSocket and send their key as subprotocol `bearer.KEY`.
        query_key: a key from the address, on routes whose clients send it there.

    Raises:
        UnauthorizedError: with code `unauthorized` (401) or, for the origin or the scope,
            `forbidden` (403).
    """
    headers = Headers(scope=request)
    _check_origin(settings, headers)
    host, _ = request.get("client") or ("unknown", 0)
    key = _known_key(keys, key_of(request) or query_key) if keys.needs_key else None
    caller = Caller(host, None if key is None else key.id)
    request[_CALLER] = caller  # before its scope is checked: the log names who was refused
    if key is not None:
        check_scope(key, request.get("method", "GET"), request["path"])
    return caller


def has_scope(keys: KeyRing, request: AsgiScope, needed: Scope) -> bool:
    """Whether a request that needs no key has one with a scope; true on a server without keys."""
    key = keys.find(key_of(request) or "")
    return not keys.needs_key or (key is not None and needed in key.scopes)


def caller_of(request: AsgiScope) -> Caller:
    """The caller of a request that passed `check`."""
    return request[_CALLER]


def noted_caller(request: AsgiScope) -> Caller | None:
    """The caller of a request; None if it needed no check, or had no known key."""
    return request.get(_CALLER)


def owner_of(request: AsgiScope) -> str:
    """The owner that a request counts for; empty where `noted_caller` is None."""
    caller = noted_caller(request)
    return "" if caller is None else caller.owner


def _check_origin(settings: Settings, headers: Headers) -> None:
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
    is_open = settings.is_loopback and not settings.needs_key
    return parts.netloc == host and (not is_open or parts.hostname in LOOPBACK)


def key_of(request: AsgiScope) -> str | None:
    """The key in the headers of a request; None if it has none."""
    headers = Headers(scope=request)
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() in _SCHEMES:
        return key.strip()
    if key := headers.get("x-api-key") or headers.get("xi-api-key"):
        return key
    for subprotocol in request.get("subprotocols", ()):
        if subprotocol.startswith(_BEARER_SUBPROTOCOL):
            return subprotocol.removeprefix(_BEARER_SUBPROTOCOL)
    return None


def _known_key(keys: KeyRing, offered: str | None) -> Key:
    key = keys.find(offered or "")
    if offered is None or key is None:
        raise UnauthorizedError(
            "expected an API key: `Authorization: Bearer KEY`, `X-API-Key: KEY`, or the "
            "WebSocket subprotocol `bearer.KEY`"
        )
    return key


def check_scope(key: Key, method: str, path: str) -> None:
    """Check that a key has the scope of a route; raises as `check` does."""
    needed = scope_of(method, path)
    if needed is not None and needed not in key.scopes:
        raise scope_error(key, needed)


def scope_error(key: Key, needed: Scope) -> UnauthorizedError:
    """The error of a request whose key lacks a scope."""
    return UnauthorizedError(
        f"expected a key with the scope {needed}, got one with {', '.join(key.listed_scopes)}; "
        f"make one with `voiceagent-tts keys create NAME --scope {needed}`",
        code=ErrorCode.FORBIDDEN,
    )
