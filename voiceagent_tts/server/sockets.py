"""WebSocket paths: which sockets are served, and how others are refused."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response, WebSocket
from starlette.exceptions import HTTPException

from voiceagent_tts.access.callers import Caller
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError, VoiceAgentError
from voiceagent_tts.protocol.server_connection import Dialect
from voiceagent_tts.server import auth
from voiceagent_tts.server.error_answers import error_response, refused_request
from voiceagent_tts.server.request_log import log_refusal, note_error, request_id_of
from voiceagent_tts.server.state import ServerState, draining_error
from voiceagent_tts.server.websocket import Session


def add_socket(app: FastAPI, path: str, serve: Callable[..., Awaitable[None]]) -> None:
    """Add a WebSocket path; who opens it in a browser or with curl is told what it is."""
    app.websocket(path)(serve)

    @app.get(path, include_in_schema=False)
    async def not_upgraded(request: Request) -> Response:
        scheme = "wss" if request.url.is_secure else "ws"
        raise InvalidRequestError(
            f"expected a WebSocket handshake on {request.url.path}, got a plain GET; connect to "
            f"{scheme}://{request.url.netloc}{request.url.path}, or POST to /v1/audio/speech",
            code=ErrorCode.UPGRADE_REQUIRED,
        )


def refuse_other_sockets(app: FastAPI) -> None:
    """Answer 404 on every other path; Starlette answers 403, which clients take for a bad key."""

    @app.websocket("/{path:path}")
    async def unknown(websocket: WebSocket, path: str) -> None:
        await refuse_socket(websocket, refused_request(HTTPException(404)))


async def serve_socket(
    state: ServerState,
    websocket: WebSocket,
    dialect: Callable[[Caller], Dialect],
    query_key: str | None = None,
) -> None:
    """Serve a socket to its end, or refuse it.

    Args:
        state: what all routes share.
        websocket: not yet accepted.
        dialect: returns the protocol of a client whose key has been checked, or raises
            `InvalidRequestError` for a mistake in its address.
        query_key: a key from elsewhere than the headers.
    """
    try:
        session = _session(state, websocket, dialect, query_key)
    except VoiceAgentError as error:
        await refuse_socket(websocket, error)
        return
    await session.run()


async def refuse_socket(websocket: WebSocket, error: VoiceAgentError) -> None:
    """Refuse a socket before it is accepted."""
    note_error(websocket.scope, error)
    answer = error_response(websocket.scope, error)
    answer.headers["X-Request-Id"] = request_id_of(websocket.scope)
    log_refusal(websocket.scope, answer.status_code)
    await websocket.send_denial_response(answer)


def _session(
    state: ServerState,
    websocket: WebSocket,
    dialect: Callable[[Caller], Dialect],
    query_key: str | None,
) -> Session:
    """As `serve_socket`."""
    caller = auth.check(state, websocket.scope, query_key)
    spoken = dialect(caller)
    if state.is_draining:
        raise draining_error()
    if not state.make_room(caller):
        raise OverloadedError(
            f"all {state.settings.max_sockets} sockets of this server are in use",
            retry_after_ms=1000,
        )
    return Session(state, websocket, spoken)
