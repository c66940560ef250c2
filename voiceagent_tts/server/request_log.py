"""Logs each HTTP request and refused WebSocket in one line, with an id that the client gets too.

A route that fails is answered here, and its failure is logged without its message.
"""

import asyncio
import re
import time
import uuid
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.server.auth import noted_caller
from voiceagent_tts.server.error_answers import ERROR_CODE, log_if_unexpected, refuse
from voiceagent_tts.server.state import ServerState, draining_error

_QUIET_PATHS = ("/health", "/metrics")
"""Probes and scrapers request these every few seconds; only their failures are logged."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_REQUEST_ID_KEY = "voiceagent_tts.request_id"
_STARTED_AT = "voiceagent_tts.started_at"

_log = structlog.get_logger(__name__)


def request_id_of(scope: Scope) -> str:
    """The id of a request that has passed `RequestLog`."""
    return scope[_REQUEST_ID_KEY]


def path_of(scope: Scope) -> str:
    """The path of a request, percent-encoded, without its query."""
    return quote(scope["path"])


class RequestLog:
    """Gives each request and handshake an id, answers it as `X-Request-Id`, and logs its end.

    An id that a proxy has chosen is kept. A WebSocket is logged here only if it is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope[_STARTED_AT], scope[_REQUEST_ID_KEY] = time.monotonic(), _new_id(scope)
        if scope["type"] != "http":  # what an accepted socket sends passes nothing here
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id_of(scope)
            await send(message)

        failure: VoiceAgentError | None = None
        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            # The server ends. uvicorn would answer 500, without a body in JSON, or log a traceback.
            failure = draining_error()
        except Exception as error:  # uvicorn would log its message, which may quote the text
            failure = VoiceAgentError.wrapping(error)
            log_if_unexpected(failure, request_id=request_id_of(scope))
            scope["app"].state.server.metrics.errors.labels(failure.code).inc()
        if failure is not None:
            scope[ERROR_CODE] = failure.code.value
            if status is None:
                await refuse(failure, scope, receive, send_with_id)
        log_request(scope, 500 if status is None else status)


def log_request(scope: Scope, status: int) -> None:
    """Count and log a request, or a WebSocket that is refused before it is accepted.

    The line has no query, no body and no header: those may hold keys and text to be spoken. Its
    path is percent-encoded, because a decoded one could hold escape sequences of terminals.
    """
    state: ServerState = scope["app"].state.server
    # The template of the path: the path itself would be a label without bounds.
    state.metrics.requests.labels(getattr(scope.get("route"), "path", "other"), str(status)).inc()
    if scope["path"].startswith(_QUIET_PATHS) and status == 200:
        return
    caller, (host, _) = noted_caller(scope), scope.get("client") or (None, 0)
    _log.info(
        "http_request" if scope["type"] == "http" else "socket_refused",
        request_id=request_id_of(scope),
        method=scope.get("method", "GET"),
        path=path_of(scope),
        status=status,
        code=scope.get(ERROR_CODE),
        ip=host,
        key_id=None if caller is None else caller.key_id,
        seconds=round(time.monotonic() - scope[_STARTED_AT], 3),
    )


def _new_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
