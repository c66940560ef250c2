"""Adds the sockets and routes of Cartesia, ElevenLabs and vLLM-Omni to a server."""

from functools import partial

from fastapi import WebSocket

from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.plugins.dialects import cartesia_routes
from voiceagent_tts.plugins.dialects import elevenlabs_routes as elevenlabs
from voiceagent_tts.plugins.dialects.cartesia import Cartesia
from voiceagent_tts.plugins.dialects.elevenlabs import ElevenLabs
from voiceagent_tts.plugins.dialects.elevenlabs_messages import SocketOptions, voice_name
from voiceagent_tts.plugins.dialects.vllm_omni import VllmOmni
from voiceagent_tts.server.callers import Caller
from voiceagent_tts.server.state import ErrorForm, ServerHooks, ServerState
from voiceagent_tts.server.websocket import add_socket, refuse_socket, serve_socket


def add_to_server(hooks: ServerHooks) -> None:
    """Add the dialects."""
    app, state = hooks.app, hooks.state
    app.include_router(cartesia_routes.router)
    app.include_router(elevenlabs.router)
    app.include_router(elevenlabs.router, prefix=elevenlabs.LIVEKIT, include_in_schema=False)
    hooks.error_forms.append(ErrorForm(elevenlabs.is_route, elevenlabs.error_body))
    waiters = elevenlabs.KeyWaiters()

    async def vllm_omni(websocket: WebSocket) -> None:
        await serve_socket(
            state,
            websocket,
            lambda caller: VllmOmni(state.synthesizer.voices.seen_by(caller.key_id).names),
        )

    async def cartesia(websocket: WebSocket) -> None:
        # Cartesia's clients in browsers cannot set headers and send their key in the address.
        key = websocket.query_params.get("api_key")
        await serve_socket(state, websocket, lambda _: Cartesia(), key)

    async def eleven_labs(websocket: WebSocket, voice_id: str) -> None:
        await _serve_eleven_labs(state, waiters, websocket, voice_id)

    add_socket(app, "/v1/audio/speech/stream", vllm_omni)
    add_socket(app, "/tts/websocket", cartesia)
    for prefix in ("", elevenlabs.LIVEKIT):
        for kind in ("stream", "multi-stream"):
            path = f"{prefix}/v1/text-to-speech/{{voice_id}}/{kind}-input"
            add_socket(app, path, eleven_labs)


async def _serve_eleven_labs(
    state: ServerState, waiters: elevenlabs.KeyWaiters, websocket: WebSocket, voice_id: str
) -> None:
    """Serve a socket of ElevenLabs' clients; its key may be in its first message."""
    key = None
    try:
        if state.access is not None and state.access.lacks_key(websocket.scope):
            websocket, key = await waiters.await_key(websocket)
    except OverloadedError as error:
        await refuse_socket(websocket, error)
        return
    dialect = partial(_eleven_labs, state, websocket, voice_id)
    await serve_socket(state, websocket, dialect, key)


def _eleven_labs(
    state: ServerState, websocket: WebSocket, voice_id: str, caller: Caller
) -> ElevenLabs:
    """The dialect for an address of ElevenLabs' sockets."""
    path = websocket.url.path
    return ElevenLabs(
        voice_name(voice_id, state.synthesizer.voices.seen_by(caller.key_id)),
        SocketOptions.parse(websocket.query_params),
        is_multi=path.endswith("/multi-stream-input"),
        counts_from_context=path.startswith(elevenlabs.LIVEKIT),
    )
