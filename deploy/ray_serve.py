"""Replicas of the server under Ray Serve, behind its proxy: `serve run deploy/ray_serve.yaml`.

Each replica is one server with its own engine workers, set up by the same `VOICEAGENT_TTS_*`
variables as `voiceagent-tts serve`. docs/scale.md says what Ray's proxy does not do.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ray import serve
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voiceagent_tts.config import Settings
from voiceagent_tts.server.app import create_app
from voiceagent_tts.server.state import ServerState

_SETTINGS = Settings(host="0.0.0.0")  # Ray's proxy decides who can reach it: expect keys


def build_app() -> Starlette:
    """The app of one replica, whose lifespan starts and stops the engine workers."""
    state = ServerState(_SETTINGS)
    served = RaySockets(create_app(state))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            await state.start()
            yield
            await state.drain(0)
        finally:
            await state.close()

    app = Starlette(routes=[Mount("", served)], lifespan=lifespan)
    app.state.server = state
    return app


class RaySockets:
    """Gives sockets behind Ray's proxy what those of our own server have beyond ASGI.

    Args:
        app: the app.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; a socket can be closed while its client does not read."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        events: asyncio.Queue[Message] = asyncio.Queue()
        closing: set[asyncio.Task[None]] = set()

        async def read() -> None:
            while True:
                event = await receive()
                events.put_nowait(event)
                if event["type"] == "websocket.disconnect":
                    return

        def close_now(code: int, reason: str) -> None:
            close = {"type": "websocket.close", "code": code, "reason": reason}
            closing.add(asyncio.create_task(_send_last(send, close)))
            events.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})

        extensions: dict[str, Any] = scope.setdefault("extensions", {})
        extensions["voiceagent_tts.close_now"] = close_now
        extensions["voiceagent_tts.buffered_bytes"] = lambda: 0  # Ray's proxy does not tell
        reading = asyncio.create_task(read())
        try:
            await self._app(scope, events.get, send)
        finally:
            reading.cancel()
            await asyncio.gather(reading, *closing, return_exceptions=True)


async def _send_last(send: Send, message: Message) -> None:
    with contextlib.suppress(Exception):  # the client has closed the socket meanwhile
        await send(message)


@serve.deployment(
    num_replicas=2,
    # Every open socket is a request of Ray's; beyond this number Ray lets a handshake hang, where
    # our own limit refuses it with a reason.
    max_ongoing_requests=_SETTINGS.max_sockets + 100,
    health_check_period_s=5,
    health_check_timeout_s=10,
    graceful_shutdown_timeout_s=120,  # sockets that are open still after that are cut
)
@serve.ingress(build_app)
class Speech:
    """One replica."""

    app: Starlette  # of the base class that `ingress` adds

    async def check_health(self) -> None:
        """Let Ray replace a replica whose engine speaks no more.

        Raises:
            RuntimeError: nothing was spoken for `watchdog_s`.
        """
        if not self.app.state.server.watchdog.is_healthy:
            raise RuntimeError("the engine does not speak")


app = Speech.bind()
