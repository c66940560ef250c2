"""Logs each HTTP request and refused WebSocket in one line, with an id that the client gets too."""

import functools
import re
import time
import uuid
from collections.abc import Callable
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.auth import noted_caller

_QUIET_PATHS = ("/health", "/metrics")
"""Probes and scrapers request these every few seconds; only their failures are logged."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_ERROR_CODE = "voiceagent_tts.error_code"
_REQUEST_ID_KEY = "voiceagent_tts.request_id"
_LOG_REFUSAL = "voiceagent_tts.log_refusal"

_log = structlog.get_logger(__name__)


def note_error(scope: Scope, error: VoiceAgentError) -> None:
    """Name the error in the line of this request."""
    scope[_ERROR_CODE] = error.code.value


def log_refusal(scope: Scope, status: int) -> None:
    """Log a WebSocket that is refused with `status` before it is accepted."""
    scope[_LOG_REFUSAL](status)


def request_id_of(scope: Scope) -> str:
    """The id of a request that has passed `RequestLog`."""
    return scope[_REQUEST_ID_KEY]


def path_of(scope: Scope) -> str:
    """The path of a request, percent-encoded, without its query."""
    return quote(scope["path"])


class RequestLog:
    """Gives each request and handshake an id, answers it as `X-Request-Id`, and logs its end.

    An id that a proxy has chosen is kept. The line has no query, no body and no header: those may
    hold keys and text to be spoken. Its path is percent-encoded, because a decoded one could hold
    escape sequences of terminals. A WebSocket is logged here only if it is refused.

    Args:
        count: receives the route and the status of each; `other` for a path without a route.
    """

    def __init__(self, app: ASGIApp, count: Callable[[str, int], None]) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        log = functools.partial(self._log, scope, time.monotonic())
        scope[_REQUEST_ID_KEY] = _new_id(scope)
        if scope["type"] == "http":
            await self._serve(scope, receive, send, log)
        else:  # what an accepted socket sends passes nothing here
            scope[_LOG_REFUSAL] = log
            try:
                await self._app(scope, receive, send)
            finally:
                del scope[_LOG_REFUSAL]  # which holds the scope

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, log: Callable[[int], None]
    ) -> None:
        status = 500  # an exception passes here before it is answered

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id_of(scope)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            log(status)

    def _log(self, scope: Scope, started: float, status: int) -> None:
        # The template of the path: the path itself would be a label without bounds.
        self._count(getattr(scope.get("route"), "path", "other"), status)
        if scope["path"].startswith(_QUIET_PATHS) and status == 200:
            return
        caller, (host, _) = noted_caller(scope), scope.get("client") or (None, 0)
        _log.info(
            "http_request" if scope["type"] == "http" else "socket_refused",
            request_id=request_id_of(scope),
            method=scope.get("method", "GET"),
            path=path_of(scope),
            status=status,
            code=scope.get(_ERROR_CODE),
            ip=host,
            key_id=None if caller is None else caller.key_id,
            seconds=round(time.monotonic() - started, 3),
        )


def _new_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
