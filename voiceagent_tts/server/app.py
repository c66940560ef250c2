"""The FastAPI app: all routes over one `ServerState`.

Keys and origins are checked before anything else runs, and all HTTP errors have one form.
"""

import math

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts import __version__
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.dialects.cartesia import Cartesia
from voiceagent_tts.protocol.dialects.dialect import Dialect, TtsV1
from voiceagent_tts.protocol.dialects.elevenlabs import ElevenLabs
from voiceagent_tts.protocol.dialects.elevenlabs_messages import SocketOptions, voice_name
from voiceagent_tts.protocol.dialects.vllm_omni import VllmOmni
from voiceagent_tts.server import (
    auth,
    cache,
    clones,
    consents,
    elevenlabs,
    health,
    page,
    provenance,
    speech,
    speech_batch,
    usage,
    voices,
)
from voiceagent_tts.server import jobs as job_routes
from voiceagent_tts.server.jobs import FILES_PATH, Jobs
from voiceagent_tts.server.request_log import RequestLog, note_error
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.server.websocket import Session

MAX_BODY_BYTES = 1 << 20
_UPLOAD_BYTES = {
    "/v1/audio/voices": clones.MAX_UPLOAD_BYTES,
    consents.PATH: clones.MAX_UPLOAD_BYTES,
    "/v1/provenance/detect": provenance.MAX_UPLOAD_BYTES,
}
"""Longer bodies, of paths that receive files."""
_OPEN_PATHS = ("/health", *page.OPEN_PATHS, FILES_PATH)
"""Paths without keys: of probes, of browsers, and of links that are signed."""


def create_app(state: ServerState, jobs: Jobs) -> FastAPI:
    """Create the app with all routes."""
    app = FastAPI(
        title="voiceagent-tts",
        version=__version__,
        description="Self-hosted, real-time text-to-speech. The WebSocket protocol tts.v1 at "
        "`/v1/tts/ws`, and those of vLLM-Omni, Cartesia and ElevenLabs at "
        "`/v1/audio/speech/stream`, `/tts/websocket` and `/v1/text-to-speech/{voice_id}`, are "
        "described in docs/protocol.md.",
        docs_url=None,  # `page` serves one that loads nothing from other sites
        redoc_url=None,
    )
    app.state.server = state
    app.state.jobs = jobs
    app.add_middleware(_BodyGuard)
    app.add_middleware(_KeyGuard, state=state)
    # Outside of the checks: a browser asks without a key whether it may send one.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=state.settings.allowed_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "X-API-Key", "xi-api-key"],
    )
    # Outermost: it also logs what the others refuse.
    app.add_middleware(RequestLog, count=state.metrics.count_request)
    _answer_errors(app, state)
    app.include_router(speech.router)
    app.include_router(speech_batch.router)
    app.include_router(job_routes.router)
    app.include_router(voices.router)
    app.include_router(elevenlabs.router)
    app.include_router(elevenlabs.router, prefix=elevenlabs.LIVEKIT, include_in_schema=False)
    app.include_router(clones.router)
    app.include_router(consents.router)
    app.include_router(provenance.router)
    app.include_router(usage.router)
    app.include_router(cache.router)
    app.include_router(health.router)
    app.include_router(page.router)
    app.mount("/static", page.PageFiles())

    @app.get("/metrics", tags=["operations"])
    async def metrics() -> Response:
        """Report the metrics in the Prometheus text format."""
        return Response(state.metrics.render(), media_type="text/plain; version=0.0.4")

    async def serve(websocket: WebSocket, dialect: Dialect, key: str | None = None) -> None:
        if refusal := _refusal(state, websocket, key):
            await _refuse(websocket, refusal)
            return
        await Session(state, websocket, dialect).run()

    @app.websocket("/v1/tts/ws")
    async def tts(websocket: WebSocket) -> None:
        await serve(websocket, TtsV1())

    @app.websocket("/v1/audio/speech/stream")
    async def vllm_omni(websocket: WebSocket) -> None:
        await serve(websocket, VllmOmni(state.synthesizer.voices.names))

    @app.websocket("/tts/websocket")
    async def cartesia(websocket: WebSocket) -> None:
        # Cartesia's clients in browsers cannot set headers and send their key in the address.
        await serve(websocket, Cartesia(), websocket.query_params.get("api_key"))

    waiters = elevenlabs.KeyWaiters()

    @app.websocket("/v1/text-to-speech/{voice_id}/{kind}-input")
    @app.websocket("/livekit/v1/text-to-speech/{voice_id}/{kind}-input")
    async def eleven_labs(websocket: WebSocket, voice_id: str, kind: str) -> None:
        try:
            dialect = _eleven_labs(state, websocket, voice_id, kind)
        except InvalidRequestError as error:
            await _refuse(websocket, error)
            return
        key = None
        if state.keys.needs_key and auth.key_of(websocket.scope) is None:
            try:
                websocket, key = await waiters.await_key(websocket)
            except OverloadedError as error:
                await _refuse(websocket, error)
                return
        await serve(websocket, dialect, key)

    @app.get("/v1/text-to-speech/{voice_id}/stream-input", include_in_schema=False)
    @app.get("/v1/text-to-speech/{voice_id}/multi-stream-input", include_in_schema=False)
    @app.get("/v1/tts/ws", include_in_schema=False)
    @app.get("/v1/audio/speech/stream", include_in_schema=False)
    @app.get("/tts/websocket", include_in_schema=False)
    async def not_upgraded(request: Request) -> Response:
        """Say that a path is a WebSocket to those who open it in a browser or with curl."""
        raise InvalidRequestError(
            f"expected a WebSocket handshake on {request.url.path}, got a plain GET; connect to "
            f"ws://{request.url.netloc}{request.url.path}, or POST to /v1/audio/speech",
            code=ErrorCode.UPGRADE_REQUIRED,
        )

    @app.websocket("/{path:path}")
    async def unknown(websocket: WebSocket, path: str) -> None:
        # By default Starlette answers 403, which clients take for a refused key.
        await _refuse(websocket, _refused_request(HTTPException(404)))

    return app


def _eleven_labs(state: ServerState, websocket: WebSocket, voice_id: str, kind: str) -> ElevenLabs:
    """The dialect for an address of ElevenLabs' sockets.

    Raises:
        InvalidRequestError: there is no such address, or an option in it is not legal.
    """
    if kind not in ("stream", "multi-stream"):
        raise _refused_request(HTTPException(404))
    return ElevenLabs(
        voice_name(voice_id, state.synthesizer.voices.names()),
        SocketOptions.parse(websocket.query_params),
        is_multi=kind == "multi-stream",
        counts_from_context=websocket.url.path.startswith(elevenlabs.LIVEKIT),
    )


async def _refuse(websocket: WebSocket, error: VoiceAgentError) -> None:
    """Refuse a socket before it is accepted."""
    note_error(websocket.scope, error)
    await websocket.send_denial_response(_error_response(websocket.scope, error))


class _KeyGuard:
    """Checks keys, scopes and origins of HTTP requests before their bodies are read."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_open(scope["path"]):
            try:
                auth.check(self._state.settings, self._state.keys, scope)
            except UnauthorizedError as error:
                note_error(scope, error)
                await _error_response(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _OPEN_PATHS)


class _BodyGuard:
    """Refuses a request while it is read, when its body becomes too long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = _max_body_bytes(scope["path"])
        left_bytes = max_bytes

        async def receive_some() -> Message:
            nonlocal left_bytes
            message = await receive()
            left_bytes -= len(message.get("body", b""))
            if left_bytes < 0:
                raise HTTPException(413, f"expected a body of at most {max_bytes} bytes")
            return message

        await self._app(scope, receive_some if scope["type"] == "http" else receive, send)


def _max_body_bytes(path: str) -> int:
    return _UPLOAD_BYTES.get(path, MAX_BODY_BYTES)


def _answer_errors(app: FastAPI, state: ServerState) -> None:
    @app.exception_handler(VoiceAgentError)
    async def on_error(request: Request, error: VoiceAgentError) -> Response:
        note_error(request.scope, error)
        state.metrics.errors.labels(error.code).inc()
        return _error_response(request.scope, error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        return await on_error(_, _invalid_request(error))

    @app.exception_handler(HTTPException)
    async def on_refused(_: Request, error: HTTPException) -> Response:
        return await on_error(_, _refused_request(error))

    @app.exception_handler(Exception)
    async def on_bug(_: Request, error: Exception) -> Response:
        return await on_error(_, VoiceAgentError(f"the server failed with {type(error).__name__}"))


def _refusal(
    state: ServerState, websocket: WebSocket, query_key: str | None
) -> VoiceAgentError | None:
    try:
        auth.check(state.settings, state.keys, websocket.scope, query_key)
    except UnauthorizedError as error:
        return error
    if state.is_draining:
        return OverloadedError("the server is shutting down", code=ErrorCode.DRAINING)
    if len(state.sessions) >= state.settings.max_sockets:
        return OverloadedError(
            f"all {state.settings.max_sockets} sockets of this server are in use",
            retry_after_ms=1000,
        )
    return None


def _invalid_request(error: RequestValidationError) -> InvalidRequestError:
    # Only the place and the kind of the error: the input may be text to be spoken.
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    if first["type"] == "json_invalid":
        return InvalidRequestError("the body is not JSON", code=ErrorCode.INVALID_JSON)
    if not place:
        sentence = "the body: expected a JSON object, sent with Content-Type: application/json"
        return InvalidRequestError(sentence, code=ErrorCode.INVALID_PARAM)
    return InvalidRequestError(f"{place}: {first['msg']}", code=ErrorCode.INVALID_PARAM)


def _refused_request(error: HTTPException) -> VoiceAgentError:
    """The error for a request that FastAPI refuses before a route handles it."""
    match error.status_code:
        case 404:
            return InvalidRequestError("this path does not exist", code=ErrorCode.NOT_FOUND)
        case 405:
            return InvalidRequestError(
                "this path requires another method", code=ErrorCode.METHOD_NOT_ALLOWED
            )
        case 413:
            return InvalidRequestError(str(error.detail), code=ErrorCode.MESSAGE_TOO_BIG)
        case _:
            return InvalidRequestError(
                "the body cannot be read as JSON or as a form", code=ErrorCode.INVALID_JSON
            )


def _kind(status: int) -> str:
    """The `type` of an error, one of OpenAI's."""
    if status >= 500:
        return "server_error"
    return "rate_limit_error" if status == 429 else "invalid_request_error"


def _error_response(scope: Scope, error: VoiceAgentError) -> JSONResponse:
    """The response for an error, in OpenAI's form, or in ElevenLabs' on its routes."""
    kind, code = _kind(error.status), error.code.value
    body = {"message": error.message, "type": kind, "param": None, "code": code}
    headers: dict[str, str] = {}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    if error.code is ErrorCode.UPGRADE_REQUIRED:
        headers["Upgrade"] = "websocket"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    is_eleven_labs = elevenlabs.is_route(scope["path"])
    shown = elevenlabs.error_body(error) if is_eleven_labs else {"error": body}
    return JSONResponse(shown, error.status, headers)
