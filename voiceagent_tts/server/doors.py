"""The WebSocket paths: `tts.v1`, and the protocols of other servers, over the same sessions."""

from fastapi import FastAPI, Request, Response, WebSocket
from starlette.exceptions import HTTPException

from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    UnauthorizedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.dialects.cartesia import Cartesia
from voiceagent_tts.protocol.dialects.elevenlabs import ElevenLabs
from voiceagent_tts.protocol.dialects.elevenlabs_messages import SocketOptions, voice_name
from voiceagent_tts.protocol.dialects.vllm_omni import VllmOmni
from voiceagent_tts.protocol.server_connection import Dialect, TtsV1
from voiceagent_tts.server import auth, elevenlabs
from voiceagent_tts.server.error_answers import error_response, refused_request
from voiceagent_tts.server.request_log import log_refusal, note_error, request_id_of
from voiceagent_tts.server.state import ServerState, draining_error
from voiceagent_tts.server.websocket import Session


def add_doors(app: FastAPI, state: ServerState) -> None:
    """Add every WebSocket path; any other is answered with 404."""

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
        await _refuse(websocket, refused_request(HTTPException(404)))


def _eleven_labs(state: ServerState, websocket: WebSocket, voice_id: str, kind: str) -> ElevenLabs:
    """The dialect for an address of ElevenLabs' sockets.

    Raises:
        InvalidRequestError: there is no such address, or an option in it is not legal.
    """
    if kind not in ("stream", "multi-stream"):
        raise refused_request(HTTPException(404))
    return ElevenLabs(
        voice_name(voice_id, state.synthesizer.voices.names()),
        SocketOptions.parse(websocket.query_params),
        is_multi=kind == "multi-stream",
        counts_from_context=websocket.url.path.startswith(elevenlabs.LIVEKIT),
    )


async def _refuse(websocket: WebSocket, error: VoiceAgentError) -> None:
    """Refuse a socket before it is accepted."""
    note_error(websocket.scope, error)
    answer = error_response(websocket.scope, error)
    answer.headers["X-Request-Id"] = request_id_of(websocket.scope)
    log_refusal(websocket.scope, answer.status_code)
    await websocket.send_denial_response(answer)


def _refusal(
    state: ServerState, websocket: WebSocket, query_key: str | None
) -> VoiceAgentError | None:
    try:
        auth.check(state.settings, state.keys, websocket.scope, query_key)
    except UnauthorizedError as error:
        return error
    if state.is_draining:
        return draining_error()
    if len(state.sessions) >= state.settings.max_sockets:
        return OverloadedError(
            f"all {state.settings.max_sockets} sockets of this server are in use",
            retry_after_ms=1000,
        )
    return None
