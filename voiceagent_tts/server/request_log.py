"""Logs each HTTP request and refused WebSocket in one line, with an id that the client gets too."""

import re
import time
import uuid
from collections.abc import Callable
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts.errors import VoiceAgentError

_QUIET_PATHS = ("/health", "/metrics")
"""Probes and scrapers request these every few seconds; only their failures are logged."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_ERROR_CODE = "voiceagent_tts.error_code"
_REQUEST_ID_KEY = "voiceagent_tts.request_id"

_log = structlog.get_logger(__name__)


def note_error(scope: Scope, error: VoiceAgentError) -> None:
    """Name the error in the line of this request."""
    scope[_ERROR_CODE] = error.code.value


def request_id_of(scope: Scope) -> str:
    """The id of a request that has passed `RequestLog`."""
    return scope[_REQUEST_ID_KEY]


def path_of(scope: Scope) -> str:
    """The path of a request, percent-encoded, without its query."""
    return quote(scope["path"])


class RequestLog:
    """Gives each HTTP request an id, returns it as `X-Request-Id`, and logs the request's end.

    An id that a proxy has chosen is kept. The line has no query, no body and no header: those may
    hold keys and text to be spoken. Its path is percent-encoded, because a decoded one could hold
    escape sequences of terminals. A WebSocket is logged here only if it is refused.

    Args:
        app: serves the requests.
        count: receives the route and the status of each; `other` for a path without a route.
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        status: int | None = None
        started = time.monotonic()
        scope[_REQUEST_ID_KEY] = request_id = _new_id(scope)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            is_quiet = scope["path"].startswith(_QUIET_PATHS) and status == 200
            is_request = scope["type"] == "http" or status is not None
            if is_request:
                self._count(_route_of(scope), status or 500)
            if is_request and not is_quiet:
                _log.info(
                    "http_request" if scope["type"] == "http" else "socket_refused",
                    request_id=request_id,
                    method=scope.get("method", "GET"),
                    path=path_of(scope),
                    status=status or 500,  # an exception passes here before it is answered
                    code=scope.get(_ERROR_CODE),
                    seconds=round(time.monotonic() - started, 3),
                )


def _route_of(scope: Scope) -> str:
    """The template of a request's path: the path itself would be a label without bounds."""
    return getattr(scope.get("route"), "path", "other")


def _new_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
