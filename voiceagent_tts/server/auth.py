"""Checks who sends a request, and from which web origin, before any upgrade or work."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from voiceagent_tts.config import Settings
from voiceagent_tts.errors import ErrorCode, UnauthorizedError
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.settings.network import LOOPBACK

if TYPE_CHECKING:
    from voiceagent_tts.server.state import ServerState

_CALLER = "voiceagent_tts.caller"


def check(state: "ServerState", request: AsgiScope, query_key: str | None = None) -> Caller:
    """Check the origin, the key and its scope; note the caller in the request.

    Args:
        state: what all routes share.
        request: an HTTP request or the handshake of a WebSocket. Browsers cannot set headers of a
            WebSocket and send their key as subprotocol `bearer.KEY`.
        query_key: a key from the address, on routes whose clients send it there.

    Raises:
        UnauthorizedError: with code `unauthorized` (401) or, for the origin or the scope,
            `forbidden` (403).
    """
    _check_origin(state.settings, Headers(scope=request))
    host, _ = request.get("client") or ("unknown", 0)
    access = state.access
    key_id = None if access is None else access.key_id_of(request, query_key)
    caller = Caller(host, key_id)
    request[_CALLER] = caller  # before its scope is checked: the log names a refused caller, too
    if access is not None:
        access.check_scope(key_id, request.get("method", "GET"), request["path"])
    return caller


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
