"""Sessions of the realtime speech API: opened for a voice, and used for one text after another."""

import asyncio
import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
from websockets.protocol import State

from voiceagent_tts.errors import EngineError, OverloadedError, VoiceAgentError
from voiceagent_tts.upstream.download import Download
from voiceagent_tts.upstream.realtime_api import (
    LANGUAGE_TYPES,
    REALTIME_VOICES,
    RealtimeAPI,
    message,
)
from voiceagent_tts.upstream.speech_api import SpeechRequest, retry_wait_s

_CONNECT_S = 5.0
_CLOSE_S = 1.0
_IDLE_S = 20.0
"""Time for which a session waits for the next text of its voice."""
_MAX_MESSAGE_BYTES = 4 << 20
_PASSED_OVER = (
    "session.created", "session.updated", "input_text_buffer.committed", "response.created",
    "response.output_item.added", "response.output_item.done", "response.content_part.added",
    "response.content_part.done", "response.audio.done",
)  # fmt: skip


class RealtimeSpeech:
    """Implements `SpeechService` with sessions of the realtime speech API.

    Args:
        api: its address and its messages.
        key: API key; None without one.
        timeout_s: longest wait for its next message.
    """

    engine = "dashscope"
    languages = tuple(LANGUAGE_TYPES)

    def __init__(self, api: RealtimeAPI, key: str | None, *, timeout_s: float) -> None:
        self.model = api.model
        self.takes_instruct = api.takes_instruct
        self._api = api
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s
        self._idle: dict[str, dict[ClientConnection, asyncio.TimerHandle]] = {}
        """Sessions that wait for a text, by configuration, and the timers that close them."""

    @property
    def place(self) -> str:
        """As `SpeechService`."""
        return self._api.place

    async def close(self) -> None:
        """As `SpeechService`."""
        idle = [(key, session) for key, sessions in self._idle.items() for session in sessions]
        for key, session in idle:
            self._take(key, session)
        await asyncio.gather(*(session.close() for _, session in idle))

    async def voices(self) -> list[str]:
        """Connect once, to see that the key is right; the service does not list its voices."""
        try:
            session = await self._connect()
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._explained(error) from error
        await session.close()
        return list(REALTIME_VOICES)

    async def attempt(
        self, request: SpeechRequest, download: Download, usual_s: float | None
    ) -> float | None:
        """As `SpeechService`."""
        try:
            await self._speak(request, download)
        except InvalidStatus as error:
            status = error.response.status_code
            after = error.response.headers.get("Retry-After")
            wait_s = None if usual_s is None else retry_wait_s(status, after, usual_s)
            if wait_s is None:
                raise self._explained(error) from error
            return wait_s
        except TimeoutError as error:
            raise self._explained(error) from error
        except (OSError, WebSocketException) as error:
            if usual_s is None or download.has_begun:
                raise self._explained(error) from error
            return usual_s
        return None

    async def _speak(self, request: SpeechRequest, download: Download) -> None:
        config = self._api.session(request)
        key = json.dumps(config, sort_keys=True)
        session = self._idle_session(key) or await self._open(config)
        try:
            await session.send(message("input_text_buffer.append", text=request.text))
            await session.send(message("input_text_buffer.commit"))
            await self._receive(session, download)
        except BaseException:
            # Without a close handshake, which the service would answer after the rest of its audio.
            session.transport.abort()
            raise
        self._keep(key, session)

    def _keep(self, key: str, session: ClientConnection) -> None:
        """Let a session wait for the next text of its configuration."""
        timer = asyncio.get_running_loop().call_later(_IDLE_S, self._expire, key, session)
        self._idle.setdefault(key, {})[session] = timer

    def _expire(self, key: str, session: ClientConnection) -> None:
        """Close a session that has waited for `_IDLE_S`."""
        self._take(key, session)
        session.transport.abort()

    def _idle_session(self, key: str) -> ClientConnection | None:
        """Take the newest session that is still open; None if there is none."""
        for session in reversed(list(self._idle.get(key, ()))):
            self._take(key, session)
            if session.state is State.OPEN:
                return session
        return None

    def _take(self, key: str, session: ClientConnection) -> None:
        """Remove a session from those that wait; a configuration without any leaves no entry."""
        self._idle[key].pop(session).cancel()
        if not self._idle[key]:
            del self._idle[key]

    async def _receive(self, session: ClientConnection, download: Download) -> None:
        """Receive one response."""
        while (event := await self._next(session))["type"] != "response.done":
            if event["type"] == "response.audio.delta":
                download.push(self._api.audio(event))
                await download.wait_for_room()
            elif event["type"] not in _PASSED_OVER:
                raise self._api.unexpected(event["type"])
        if not download.has_begun:
            raise EngineError(f"the upstream {self.place} sent no audio")

    async def _open(self, config: dict[str, Any]) -> ClientConnection:
        session = await self._connect()
        try:
            await session.send(message("session.update", session=config))
            while (await self._next(session))["type"] != "session.updated":
                pass
        except BaseException:
            session.transport.abort()
            raise
        return session

    async def _connect(self) -> ClientConnection:
        return await connect(
            self._api.address,
            additional_headers=self._headers,
            open_timeout=_CONNECT_S,
            close_timeout=_CLOSE_S,
            max_size=_MAX_MESSAGE_BYTES,
            compression=None,
        )

    async def _next(self, session: ClientConnection) -> dict[str, Any]:
        async with asyncio.timeout(self._timeout_s):
            event = self._api.parse(await session.recv())
        if event["type"] == "error":
            raise self._api.refused(event)
        return event

    def _explained(self, error: Exception) -> VoiceAgentError:
        """Turn an error of a connection into a sentence."""
        what = f"the upstream {self.place}"
        match error:
            case InvalidStatus():
                return self._refused(error.response.status_code)
            case TimeoutError():
                return EngineError(f"{what} sent nothing for {self._timeout_s:g} s")
            case OSError() | InvalidHandshake() | InvalidURI():
                return EngineError(f"{what} cannot be reached")
            case _:
                return EngineError(f"{what} broke off ({type(error).__name__})")

    def _refused(self, status: int) -> VoiceAgentError:
        what = f"the upstream {self.place} answered with HTTP {status}"
        if status in (401, 403):
            return EngineError(f"{what}: it refuses the key; set VOICEAGENT_TTS_UPSTREAM_KEY")
        if status == 429:
            return OverloadedError(f"{what}: its limit is reached")
        return EngineError(f"{what}: expected the address of a realtime speech API and its model")
