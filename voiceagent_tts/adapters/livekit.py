"""`TTS`: this server as a LiveKit Agents text-to-speech plugin.

One socket for the life of the plugin, one server context per reply, cancelled by name when the user
barges in, so that the next reply finds the socket warm. A word goes to the session just ahead of
the audio that it begins in, never before, with the time at which it is heard, gaps included: so an
interrupted reply keeps the words that were heard, and a reply that fails commits none that was
not. A reply that loses its server in mid-sentence goes on in a new context at the word that broke
off; LiveKit itself retries only what nobody has heard.

Switch `use_tts_aligned_transcript` on in the session, or LiveKit ignores these times and guesses.

Knows no engine and no server, only the wire (`adapters.livekit_socket`) and LiveKit's plugin API.
"""

import asyncio
import contextlib
import enum
import logging
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import uuid4

import aiohttp
from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    NotGivenOr,
    tts,
    utils,
)
from livekit.agents.types import TimedString
from yarl import URL

from voiceagent_tts.adapters.livekit_socket import Socket, authorization, open_socket
from voiceagent_tts.client import DEFAULT_PATH
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    PlayoutClock,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.connection import ClientAudio, ClientEvent, ContextRecord
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    DoneMessage,
    ErrorMessage,
    OpenOptions,
)
from voiceagent_tts.text.words import is_spoken, split_words

DEFAULT_URL = "ws://127.0.0.1:8765/v1/tts/ws"
_VOICES_PATH = "/v1/audio/voices"
_WARM_TIMEOUT_S = 5.0
_WARM_WAITS_S = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Before each attempt to connect ahead of a reply; after the last, the next reply connects."""
_ANSWER_TIMEOUT_S = 2.0
"""A server that has not said `context.opened` by then is not there, whatever its socket says."""
_RESUME_WAIT_S = 0.3
"""Between attempts to go on after a failure; the first comes at once."""
_SILENCE_S = 0.04
"""Sound of a text that has none: LiveKit takes a reply without sound for a failure."""
_BROKEN_OFF_SAMPLES = ms_to_samples(80)
"""A word that lacks more of its end than this is said again after a failure."""
_UNKNOWN_WORD_SAMPLES = ms_to_samples(250)
"""Length of a word whose end is not known yet; without an end LiveKit waits for the next word."""
_ESTIMATED_CHARS_PER_S = 15.0

logger = logging.getLogger("livekit.plugins.voiceagent")


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice of the server, and the languages that it speaks."""

    id: str
    name: str
    languages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Options:
    """How a reply is spoken and timed; None is the server's choice."""

    voice: str | None
    language: str | None
    instruct: str | None
    speed: float | None
    seed: int | None
    max_buffer_delay_ms: int | None
    max_lead_s: float | None
    sample_rate: Literal[8000, 16000, 24000, 48000]
    leading_silence_ms: int
    output_latency_s: float

    def of_open(self) -> OpenOptions:
        """What the server is told."""
        given: dict[str, Any] = {
            "voice": self.voice,
            "language": self.language,
            "instruct": self.instruct,
            "speed": self.speed,
            "seed": self.seed,
            "max_buffer_delay_ms": self.max_buffer_delay_ms,
            "max_lead_s": self.max_lead_s,
            "audio": AudioFormat(sample_rate=self.sample_rate),
        }
        return OpenOptions(**{name: value for name, value in given.items() if value is not None})


class TTS(tts.TTS):
    """Speaks through a voiceagent-tts server.

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
        output_latency_s: added to the time of every word. LiveKit lets a word go when its first
            syllable is due, or some hundred milliseconds sooner where the voice is slow, and it
            does not know what the room and the speaker buffer. More loses words that were heard,
            less commits words that were not.
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
        sample_rate: Literal[8000, 16000, 24000, 48000] = SAMPLE_RATE_HZ,
        max_buffer_delay_ms: int | None = None,
        max_lead_s: float | None = None,
        leading_silence_ms: int = 0,
        output_latency_s: float = 0.1,
        heartbeat_s: float = 15.0,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        super().__init__(
            capabilities=tts.TTSCapabilities(streaming=True, aligned_transcript=True),
            sample_rate=sample_rate,
            num_channels=1,
        )
        self._options = _Options(
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
        self._options = replace(self._options, **changes)
        if self._socket is not None and self._socket.is_usable:
            self._prepare(self._socket)

    async def list_voices(self) -> list[Voice]:
        """The server's voices, the default first.

        Raises:
            APIError: the server cannot be reached, or refuses.
        """
        scheme = "https" if self._url.scheme == "wss" else "http"
        url = self._url.with_scheme(scheme).with_path(_VOICES_PATH)
        try:
            request = self._session().get(url, headers=authorization(self._api_key))
            async with request as response:
                response.raise_for_status()
                voices = (await response.json())["voices"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _api_error(error) from error
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

    async def usable_socket(self, timeout_s: float) -> Socket:
        """The open socket, or a new one; several that wait share the attempt.

        Raises:
            APIError: there is none within `timeout_s`.
        """
        if self._socket is not None and self._socket.is_usable:
            return self._socket
        if self._is_closed:
            raise APIConnectionError("this TTS has been closed", retryable=False)
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(), name="voiceagent-connect")
            self._connecting = connecting
        # Not awaited itself: whoever is cancelled here leaves the attempt to the next reply.
        await asyncio.wait({connecting}, timeout=timeout_s)
        if not connecting.done():
            connecting.cancel()
        if connecting.cancelled() or not connecting.done():
            raise APITimeoutError(f"no answer from {self._url.authority} within {timeout_s:g} s")
        try:
            return connecting.result()
        except (VoiceAgentError, aiohttp.ClientError, OSError) as error:
            raise _api_error(error) from error

    async def _connect(self) -> Socket:
        session = self._session()
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
        options = self._options
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
                await self.usable_socket(_WARM_TIMEOUT_S)
            except APIError as error:
                logger.warning("not connected to %s: %s", self._url.authority, error)
                if not error.retryable:
                    return
            else:
                return


class SynthesizeStream(tts.SynthesizeStream):
    """One reply, spoken while it is being written."""

    def __init__(self, *, tts: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, conn_options=conn_options)
        self._voiceagent = tts
        self._options = tts._options

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        reply = _Reply(
            self._voiceagent, self._options, self._conn_options, output_emitter, self._note_sent
        )
        reply.initialize(stream=True)
        feeding = asyncio.create_task(self._feed(reply), name="voiceagent-feed")
        try:
            await reply.speak()
        finally:
            await utils.aio.cancel_and_wait(feeding)

    async def _feed(self, reply: "_Reply") -> None:
        async for item in self._input_ch:
            reply.put(item if isinstance(item, str) else _Input.FLUSH)
        reply.put(_Input.END)

    def _note_sent(self, acquire_s: float, is_reused: bool) -> None:
        self._acquire_time = acquire_s
        self._connection_reused = is_reused
        self._mark_started()


class ChunkedStream(tts.ChunkedStream):
    """A whole text, spoken as fast as the server can."""

    def __init__(self, *, tts: TTS, input_text: str, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=tts, input_text=input_text, conn_options=conn_options)
        self._voiceagent = tts
        self._options = replace(tts._options, max_lead_s=0.0)

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        reply = _Reply(
            self._voiceagent, self._options, self._conn_options, output_emitter, self._note_sent
        )
        reply.initialize(stream=False)
        reply.put(self._input_text)
        reply.put(_Input.END)
        await reply.speak()

    def _note_sent(self, acquire_s: float, is_reused: bool) -> None:
        self._acquire_time = acquire_s
        self._connection_reused = is_reused


class _Input(enum.Enum):
    FLUSH = enum.auto()
    """Speak what is there."""
    END = enum.auto()
    """No more text is coming."""


@dataclass(slots=True)
class _Context:
    """The server context that speaks now."""

    socket: Socket
    record: ContextRecord
    char_base: int
    """Where its text begins in the reply's."""
    start_sample: int
    """Where its audio begins in the reply's."""
    words_added: int = 0


class _Reply:
    """One reply: text in, audio and words out to LiveKit, over as many contexts as it takes.

    Everything that happens to it comes through one inbox, so that nothing happens at once.
    Positions are samples at 24 kHz and characters of the reply's text.
    """

    def __init__(
        self,
        plugin: TTS,
        options: _Options,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        on_sent: Callable[[float, bool], None],
    ) -> None:
        self._plugin = plugin
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
        self._on_sent = on_sent
        self._inbox: asyncio.Queue[str | _Input | ClientEvent] = asyncio.Queue()
        self._text = ""
        self._is_input_ended = False
        self._is_over = False
        self._context: _Context | None = None
        self._char_base = 0
        """End of the text that earlier contexts have spoken."""
        self._char_end = 0
        """End of the text that was given to LiveKit as words."""
        self._clock = PlayoutClock()  # of all audio given to LiveKit
        self._last_time_s = 0.0
        self._failures = 0  # since there was sound
        self._request_id = uuid4().hex

    def initialize(self, *, stream: bool) -> None:
        """Say what the emitter will get."""
        self._has_segments = stream
        self._emitter.initialize(
            request_id=self._request_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=stream,
        )

    def put(self, item: str | _Input) -> None:
        """More input: text, or what to do with it."""
        self._inbox.put_nowait(item)

    async def speak(self) -> None:
        """Speak until the text is spoken.

        Raises:
            APIError: what went wrong; retryable only while LiveKit has no audio of it.
        """
        try:
            while not self._is_over:
                await self._take(await self._next())
        except APIError as error:
            error.retryable = error.retryable and not self._clock.sent_samples
            raise
        finally:
            self._leave()

    async def _next(self) -> str | _Input | ClientEvent | TimeoutError:
        try:
            async with asyncio.timeout(self._patience_s()):
                return await self._inbox.get()
        except TimeoutError as error:
            return error

    def _patience_s(self) -> float | None:
        """How long the server may be silent; None where it owes nothing."""
        context = self._context
        if context is None:
            return None
        if context.record.handle is None:
            return min(_ANSWER_TIMEOUT_S, self._conn_options.timeout)
        is_owed = self._is_input_ended or is_spoken(self._text[self._char_end :])
        return self._conn_options.timeout if is_owed else None

    async def _take(self, item: str | _Input | ClientEvent | TimeoutError) -> None:
        match item:
            case str():
                await self._add_text(item)
            case _Input.FLUSH:
                self._tell(lambda context: context.socket.connection.flush)
            case _Input.END:
                self._is_input_ended = True
                self._tell(lambda context: context.socket.connection.end)
                self._end_if_spoken()
            case TimeoutError():
                await self._fail(self._silence())
            case _ if not self._is_current(item):
                pass  # still on its way when its context was left
            case ClientAudio():
                self._add_audio(item)
            case ErrorMessage():
                await self._fail(_api_error(item.to_error(), self._request_id))
            case DoneMessage():
                await self._finish(item)
            case _:
                pass

    def _is_current(self, event: ClientEvent) -> bool:
        context_id = getattr(event, "context_id", None)
        return self._context is not None and self._context.record.context_id == context_id

    # Text to the server.

    async def _add_text(self, text: str) -> None:
        self._text += text
        if self._context is None:
            await self._open()
        elif self._context.record.done is None:
            self._send_text(self._context, text)

    async def _open(self) -> None:
        """Open a context for the text that is not spoken, if there is any."""
        rest = self._text[self._char_base :]
        if not rest.strip():
            return
        started = time.perf_counter()
        is_reused = self._plugin.is_connected
        socket = await self._plugin.usable_socket(self._conn_options.timeout)
        is_first = self._context is None and not self._clock.sent_samples
        context_id = self._request_id if self._char_base == 0 and is_first else uuid4().hex
        try:
            record = socket.open(context_id, self._inbox.put_nowait, **self._options.of_open())
        except VoiceAgentError as error:
            raise _api_error(error, context_id) from error
        self._context = _Context(socket, record, self._char_base, self._clock.sent_samples)
        self._send_text(self._context, rest)
        if self._is_input_ended:
            self._tell(lambda context: context.socket.connection.end)
        self._on_sent(time.perf_counter() - started, is_reused)

    def _send_text(self, context: _Context, text: str) -> None:
        try:
            context.socket.send(context.socket.connection.text(context.record.context_id, text))
        except VoiceAgentError as error:
            raise _api_error(error, context.record.context_id) from error

    def _tell(self, message: Callable[[_Context], Callable[[str], str]]) -> None:
        context = self._context
        if context is not None and context.record.done is None:
            context.socket.send(message(context)(context.record.context_id))
