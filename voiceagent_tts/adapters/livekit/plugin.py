"""`TTS`: this server as a LiveKit Agents text-to-speech plugin.

One socket for the life of the plugin, one server context per reply, cancelled by name when the user
barges in, so that the next reply finds the socket warm. A word goes to the session when it is
heard, gaps included, never before: so an interrupted reply keeps the words that were heard, and a
reply that fails commits none that was not. A reply that loses its server in mid-sentence goes on in
a new context at the word that broke off; LiveKit itself retries only what nobody has heard.

Switch `use_tts_aligned_transcript` on in the session, or LiveKit ignores these words and guesses.

Knows no engine and no server, only the wire (`adapters.livekit.socket`) and LiveKit's plugin API.
"""

import asyncio
import contextlib
import logging
import time
import weakref
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import aiohttp
from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APITimeoutError,
    NotGivenOr,
    tts,
    utils,
)
from yarl import URL

from voiceagent_tts.adapters.livekit.playout import listening_output
from voiceagent_tts.adapters.livekit.reply import (
    Reply,
    ReplyInput,
    ReplyOptions,
    SampleRate,
    api_error,
)
from voiceagent_tts.adapters.livekit.socket import Socket, open_socket
from voiceagent_tts.client import DEFAULT_PATH, authorization
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import VoiceAgentError

DEFAULT_URL = "ws://127.0.0.1:8765/v1/tts/ws"
_VOICES_PATH = "/v1/audio/voices"
_WARM_TIMEOUT_S = 5.0
_WARM_WAITS_S = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Before each attempt to connect ahead of a reply; after the last, the next reply connects."""

_log = logging.getLogger("livekit.plugins.voiceagent")


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of the server, and the languages that it speaks."""

    id: str
    name: str
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acquired:
    """A socket for one reply, and how it was had."""

    socket: Socket
    seconds: float
    is_reused: bool


class TTS(tts.TTS[Literal["words"]]):
    """Speaks through a voiceagent-tts server.

    Events besides those of `livekit.agents.tts.TTS`:
        words: called with `(context_id, words)` when the word times of a stream have arrived,
            ahead of their sound; `words` are `WordTimestamp`s, positions in samples at 24 kHz.

    Args:
        url: the server's WebSocket; without a path, `/v1/tts/ws`.
        api_key: sent as a bearer token.
        voice: one of `list_voices`; None for the server's first.
        language: name, code or region code; None to detect it for each segment.
        instruct: how to speak, for voices that can be told.
        speed: 0.5 to 2.0, pitch kept.
        seed: same seed, same voice, same text: same audio, as far as the engine can.
        sample_rate: of the audio; 24 kHz is what the engines make and LiveKit plays.
        max_buffer_delay_ms: how long the server may hold text for the rest of its sentence.
        max_lead_s: how far the server may run ahead of playback.
        leading_silence_ms: silence ahead of each reply, for outputs that swallow their beginning.
        output_latency_s: what lies between LiveKit's output and the ear: the room, the player's
            buffer. Words count as heard so much later.
        heartbeat_s: how often an idle socket is tried; one that does not answer within half of
            this is replaced before the next reply needs it.
        http_session: the caller's, for use outside of a LiveKit job.
    """

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        voice: str | None = None,
        language: str | None = None,
        instruct: str | None = None,
        speed: float | None = None,
        seed: int | None = None,
        sample_rate: SampleRate = SAMPLE_RATE_HZ,
        max_buffer_delay_ms: int | None = None,
        max_lead_s: float | None = None,
        leading_silence_ms: int = 0,
        output_latency_s: float = 0.0,
        heartbeat_s: float = 15.0,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self.options = ReplyOptions(
            voice=voice,
            language=language,
            instruct=instruct,
            speed=speed,
            seed=seed,
            max_buffer_delay_ms=max_buffer_delay_ms,
            max_lead_s=max_lead_s,
            sample_rate=sample_rate,
            leading_silence_ms=leading_silence_ms,
            output_latency_s=output_latency_s,
        )
        parts = URL(url)
        self._url = parts if parts.path != "/" else parts.with_path(DEFAULT_PATH)
        self._api_key = api_key
        self._heartbeat_s = heartbeat_s
        self._http_session = http_session
        self._model = "unknown"
        self._socket: Socket | None = None
        self._sockets: set[Socket] = set()  # the current one, and those that drain
        self._connecting: asyncio.Task[Socket] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._streams: weakref.WeakSet[SynthesizeStream | ChunkedStream] = weakref.WeakSet()
        self._is_closed = False

    @property
    def model(self) -> str:
        """The server's model, once it was reached."""
        return self._model

    @property
    def provider(self) -> str:
        """Label of metrics and traces."""
        return "voiceagent-tts"

    @property
    def is_connected(self) -> bool:
        """Whether a reply would find an open socket."""
        return self._socket is not None and self._socket.is_usable

    def update_options(
        self,
        *,
        voice: NotGivenOr[str | None] = NOT_GIVEN,
        language: NotGivenOr[str | None] = NOT_GIVEN,
        instruct: NotGivenOr[str | None] = NOT_GIVEN,
        speed: NotGivenOr[float | None] = NOT_GIVEN,
        seed: NotGivenOr[int | None] = NOT_GIVEN,
    ) -> None:
        """Change how the next reply is spoken; those that have begun end as they began."""
        given: dict[str, Any] = {
            "voice": voice,
            "language": language,
            "instruct": instruct,
            "speed": speed,
            "seed": seed,
        }
        changes = {name: value for name, value in given.items() if utils.is_given(value)}
        self.options = replace(self.options, **changes)
        if self._socket is not None and self._socket.is_usable:
            self._prepare(self._socket)

    async def list_voices(self) -> list[Voice]:
        """The server's voices, the default first.

        Raises:
            APIError: the server cannot be reached, or refuses.
        """
        scheme = "https" if self._url.scheme in ("wss", "https") else "http"
        prefix, _, rest = self._url.path.rpartition(DEFAULT_PATH)  # of a proxy
        url = self._url.with_scheme(scheme).with_path(("" if rest else prefix) + _VOICES_PATH)
        try:
            request = self._session().get(url, headers=authorization(self._api_key))
            async with request as response:
                response.raise_for_status()
                voices = (await response.json())["voices"]
        except (VoiceAgentError, aiohttp.ClientError, TimeoutError) as error:
            raise api_error(error) from error
        return [Voice(v["id"], v["name"], tuple(v["languages"])) for v in voices]

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> "ChunkedStream":
        """Speak a whole text as fast as the server can."""
        stream = ChunkedStream(tts=self, input_text=text, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> "SynthesizeStream":
        """Speak one reply while its text is being written."""
        stream = SynthesizeStream(tts=self, conn_options=conn_options)
        self._streams.add(stream)
        return stream

    def prewarm(self) -> None:
        """Connect in the background, and let the server make the voice ready."""
        if not self._is_closed and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._warm(), name="voiceagent-prewarm")

    async def aclose(self) -> None:
        """End all streams, close the socket, and leave no task; idempotent."""
        self._is_closed = True
        for stream in list(self._streams):
            await stream.aclose()
        tasks = [task for task in (self._warming, self._connecting) if task is not None]
        await utils.aio.cancel_and_wait(*tasks)
        await asyncio.gather(*(socket.aclose() for socket in self._sockets))

    # The socket.

    async def acquire(self, timeout_s: float) -> Acquired:
        """The open socket, or a new one.

        Raises:
            APIError: there is none within `timeout_s`.
        """
        started = time.perf_counter()
        if self._socket is not None and self._socket.is_usable:
            return Acquired(self._socket, 0.0, is_reused=True)
        socket = await self._connected(timeout_s)
        return Acquired(socket, time.perf_counter() - started, is_reused=False)

    async def _connected(self, timeout_s: float) -> Socket:
        """A new socket; those that wait for one share an attempt, which has its beginner's time."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            connecting = self._attempt(left_s)
            # Not awaited itself: a reply that is cancelled here leaves the socket to the next.
            await asyncio.wait({connecting}, timeout=left_s)
            if not connecting.done() or connecting.cancelled():
                continue
            try:
                return connecting.result()
            except TimeoutError:
                continue  # the time of whoever began it was up
            except (VoiceAgentError, aiohttp.ClientError, OSError) as error:
                raise api_error(error) from error
        raise APITimeoutError(f"no answer from {self._url.authority} within {timeout_s:g} s")

    def _attempt(self, timeout_s: float) -> asyncio.Task[Socket]:
        if self._is_closed:
            raise APIConnectionError("this TTS has been closed", retryable=False)
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(timeout_s), name="voiceagent-connect")
            connecting.add_done_callback(_take_note)
            self._connecting = connecting
        return connecting

    async def _connect(self, timeout_s: float) -> Socket:
        session = self._session()
        async with asyncio.timeout(timeout_s):
            socket = await open_socket(session, str(self._url), self._api_key, self._heartbeat_s)
        self._model = socket.ready.model
        self._socket = socket
        self._sockets.add(socket)
        socket.start(on_unusable=lambda socket: self._replace(socket, session))
        self._prepare(socket)
        return socket

    def _session(self) -> aiohttp.ClientSession:
        return self._http_session or utils.http_context.http_session()

    def _prepare(self, socket: Socket) -> None:
        options = self.options
        with contextlib.suppress(VoiceAgentError):  # the reply that uses it says what is wrong
            socket.send(
                socket.connection.prepare(
                    voice=options.voice, language=options.language, instruct=options.instruct
                )
            )

    def _replace(self, socket: Socket, session: aiohttp.ClientSession) -> None:
        if socket.is_lost:
            self._sockets.discard(socket)
        if socket is self._socket and not session.closed:  # the job ends with its session
            self.prewarm()

    async def _warm(self) -> None:
        for wait_s in _WARM_WAITS_S:
            await asyncio.sleep(wait_s)
            try:
                await self.acquire(_WARM_TIMEOUT_S)
            except APIError as error:
                _log.warning("not connected to %s: %s", self._url.authority, error)
                if not error.retryable:
                    return
            else:
                return


class SynthesizeStream(tts.SynthesizeStream):
    """One reply, spoken while it is being written."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, conn_options=conn_options)
        self._plugin = tts
        self._options = tts.options

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        reply = Reply(
            self._options,
            self._conn_options,
            output_emitter,
            in_segment=True,
            output=listening_output(),
            connect=self._connect,
            on_sent=self._mark_started,
            on_words=partial(self._plugin.emit, "words"),
        )
        feeding = asyncio.create_task(self._feed(reply), name="voiceagent-feed")
        try:
            await reply.speak()
        finally:
            await utils.aio.cancel_and_wait(feeding)

    async def _feed(self, reply: Reply) -> None:
        async for item in self._input_ch:
            if isinstance(item, str):
                reply.put(item)
            elif not self._input_ch.closed:  # the end of the input is announced by a flush, too
                reply.put(ReplyInput.FLUSH)
        reply.put(ReplyInput.END)

    async def _connect(self) -> Socket:
        acquired = await self._plugin.acquire(self._conn_options.timeout)
        self._acquire_time, self._connection_reused = acquired.seconds, acquired.is_reused
        return acquired.socket


class ChunkedStream(tts.ChunkedStream):
    """A whole text, spoken as fast as the server can."""

    def __init__(self, *, tts: TTS, input_text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, input_text=input_text, conn_options=conn_options)
        self._plugin = tts
        self._options = replace(tts.options, max_lead_s=0.0)

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        reply = Reply(
            self._options,
            self._conn_options,
            output_emitter,
            in_segment=False,
            output=None,
            connect=self._connect,
        )
        reply.put(self._input_text)
        reply.put(ReplyInput.END)
        await reply.speak()

    async def _connect(self) -> Socket:
        acquired = await self._plugin.acquire(self._conn_options.timeout)
        self._acquire_time, self._connection_reused = acquired.seconds, acquired.is_reused
        return acquired.socket


def _take_note(task: "asyncio.Task[Socket]") -> None:
    """Keep asyncio from reporting a failure that every waiter was cancelled before."""
    if not task.cancelled():
        task.exception()
