"""Answers to requests that fail, in OpenAI's form; plugins have others on their routes."""

import math
import traceback

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError, VoiceAgentError
from voiceagent_tts.server.state import ServerHooks, ServerState

ERROR_CODE = "voiceagent_tts.error_code"
"""Key of the code of a request's error in its scope, for the log."""

_log = structlog.get_logger(__name__)


def answer_errors(app: FastAPI, state: ServerState) -> None:
    """Answer the errors of routes, but for defects: `RequestLog` answers those."""

    @app.exception_handler(VoiceAgentError)
    async def on_error(request: Request, error: VoiceAgentError) -> Response:
        state.metrics.errors.labels(error.code).inc()
        return error_response(request.scope, error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        return await on_error(_, _invalid_request(error))

    @app.exception_handler(HTTPException)
    async def on_refused(_: Request, error: HTTPException) -> Response:
        return await on_error(_, refused_request(error))


def _invalid_request(error: RequestValidationError) -> InvalidRequestError:
    from voiceagent_tts.mistakes import mistake_in  # here: few requests have one

    place, mistake = mistake_in(error)
    if error.errors()[0]["type"] == "json_invalid":
        return InvalidRequestError("the body is not JSON", code=ErrorCode.INVALID_JSON)
    if not place:
        sentence = "the body: expected a JSON object, sent with Content-Type: application/json"
        return InvalidRequestError(sentence, code=ErrorCode.INVALID_PARAM)
    return InvalidRequestError(f"{place}: {mistake}", code=ErrorCode.INVALID_PARAM)


_REFUSED = {
    404: (ErrorCode.NOT_FOUND, "this path does not exist"),
    405: (ErrorCode.METHOD_NOT_ALLOWED, "this path requires another method"),
    408: (ErrorCode.IDLE_TIMEOUT, None),
    413: (ErrorCode.MESSAGE_TOO_BIG, None),
}
"""Code and sentence for each status of a refused request; None for the sentence of the error."""
_UNREADABLE = ErrorCode.INVALID_JSON, "the body cannot be read as JSON or as a form"


def refused_request(error: HTTPException) -> VoiceAgentError:
    """The error for a request that is refused before a route handles it."""
    given = str(error.detail)
    if error.status_code == 429:
        return OverloadedError(given, code=ErrorCode.RATE_LIMITED, retry_after_ms=1000)
    code, sentence = _REFUSED.get(error.status_code, _UNREADABLE)
    return InvalidRequestError(sentence or given, code=code)


async def refuse(error: VoiceAgentError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with an error."""
    await error_response(scope, error)(scope, receive, send)


def _kind(status: int) -> str:
    if status >= 500:
        return "server_error"
    return "rate_limit_error" if status == 429 else "invalid_request_error"


def error_response(scope: Scope, error: VoiceAgentError) -> JSONResponse:
    """Note an error for the log; return the response, in OpenAI's form or that of a plugin."""
    scope[ERROR_CODE] = error.code.value
    kind, code = _kind(error.status), error.code.value
    body = {"message": error.message, "type": kind, "param": None, "code": code}
    headers: dict[str, str] = {}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    if error.code is ErrorCode.UPGRADE_REQUIRED:
        headers["Upgrade"] = "websocket"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    hooks: ServerHooks = scope["app"].state.hooks
    form = hooks.form_of(scope["path"])
    shown = {"error": body} if form is None else form.body(error)
    return JSONResponse(shown, error.status, headers)


def log_if_unexpected(error: VoiceAgentError, **ids: str | int | None) -> None:
    """Log the type and the stack of the exception that `VoiceAgentError.wrapping` wraps.

    Its message is left out, because it may quote the text.
    """
    cause = error.__cause__
    if error.code is ErrorCode.INTERNAL and cause is not None:
        calls = "".join(traceback.format_tb(cause.__traceback__))
        _log.error("server_failed", problem=type(cause).__name__, calls=calls, **ids)
