"""The FastAPI app: all routes over one `ServerState`.

Keys and origins are checked before anything else runs, and all HTTP errors have one form.
"""

import asyncio

from fastapi import FastAPI, Response
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts import __version__
from voiceagent_tts.errors import UnauthorizedError
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
from voiceagent_tts.server.doors import add_doors
from voiceagent_tts.server.error_answers import answer_errors, error_response
from voiceagent_tts.server.jobs import FILES_PATH, Jobs
from voiceagent_tts.server.request_log import RequestLog, note_error
from voiceagent_tts.server.state import ServerState

MAX_BODY_BYTES = 1 << 20
_UPLOAD_BYTES = {
    "/v1/audio/voices": clones.MAX_UPLOAD_BYTES,
    consents.PATH: clones.MAX_UPLOAD_BYTES,
    "/v1/provenance/detect": provenance.MAX_UPLOAD_BYTES,
}
"""Longer bodies, of paths that receive files."""
BODY_S = 10.0
"""How long a body may take, besides the time that its bytes take at `_SLOWEST_BYTES_PER_S`."""
_SLOWEST_BYTES_PER_S = 4096
"""A body that comes more slowly is refused: a client that sends a part of it and waits would occupy
an open file as long as it likes."""
_OPEN_PATHS = ("/health", *page.OPEN_PATHS, FILES_PATH)
"""Paths without keys: of probes, of browsers, and of links that are signed."""
_ROUTES = (
    speech, speech_batch, job_routes, voices, elevenlabs, clones, consents, provenance, usage,
    cache, health, page,
)  # fmt: skip


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
    _add_middleware(app, state)
    answer_errors(app, state)
    for routes in _ROUTES:
        app.include_router(routes.router)
    app.include_router(elevenlabs.router, prefix=elevenlabs.LIVEKIT, include_in_schema=False)
    app.mount("/static", page.PageFiles())

    @app.get("/metrics", tags=["operations"])
    async def metrics() -> Response:
        """Report the metrics in the Prometheus text format."""
        return Response(state.metrics.render(), media_type="text/plain; version=0.0.4")

    add_doors(app, state)
    return app


def _add_middleware(app: FastAPI, state: ServerState) -> None:
    """Add what every request passes, the innermost first."""
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
                await error_response(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _OPEN_PATHS)


class _BodyGuard:
    """Refuses a request while it is read, when its body becomes too long or comes too slowly."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            receive = _GuardedBody(receive, _max_body_bytes(scope["path"])).receive
        await self._app(scope, receive, send)


class _GuardedBody:
    """The body of one request."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._bytes = 0
        self._deadline = asyncio.get_running_loop().time() + BODY_S
        self._is_complete = False

    async def receive(self) -> Message:
        """Receive a part of the body; when it is complete, wait for the client to disconnect.

        Raises:
            HTTPException: 413, the body is too long; 408, it comes too slowly.
        """
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline + self._bytes / _SLOWEST_BYTES_PER_S):
                message = await self._receive()
        except TimeoutError:
            sentence = f"expected a body within {BODY_S:g} s, or {_SLOWEST_BYTES_PER_S} bytes/s"
            raise HTTPException(408, sentence) from None
        self._bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._bytes > self._max_bytes:
            raise HTTPException(413, f"expected a body of at most {self._max_bytes} bytes")
        return message


def _max_body_bytes(path: str) -> int:
    return _UPLOAD_BYTES.get(path, MAX_BODY_BYTES)
