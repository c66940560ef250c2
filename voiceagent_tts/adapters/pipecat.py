"""`VoiceAgentTTSService`: this server as a Pipecat text-to-speech service.

One socket for the life of the pipeline, one server context per turn, and the words of a turn in the
conversation's history exactly as far as they were heard: a word leaves with its sound, timed by
where that sound is in the transport's playback, gaps included; what a failed turn never spoke is
not committed. Text goes out clause by clause and comes back verbatim (`adapters.pipecat_text`).

Knows no engine and no server, only the wire (`protocol.ClientConnection`) and Pipecat's public
service API. The private names of Pipecat that it touches are those of its own services:
`_turn_context_id`, `_text_aggregator`, `_word_timestamp_tracker`, `_last_connect_time`, and the
connection hooks.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    BotStartedSpeakingFrame,
    ControlFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, WebsocketTTSService
from pipecat.services.websocket_service import ReportErrorCallback
from pipecat.transcriptions.language import Language
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.text.base_text_aggregator import BaseTextAggregator
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import NOT_GIVEN, NotGiven
from websockets.exceptions import ConnectionClosed

from voiceagent_tts.adapters.pipecat_text import ClauseAggregator, VerbatimSpacing, joint
from voiceagent_tts.client import MAX_SERVER_MESSAGE_BYTES
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    PlayoutClock,
    WordTimestamp,
    samples_to_ms,
)
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    VoiceAgentError,
)
from voiceagent_tts.protocol.connection import ClientAudio, ClientConnection, ClientEvent
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    AudioFormat,
    DoneMessage,
    ErrorMessage,
    OpenOptions,
    ProtocolError,
    WordsMessage,
)
from voiceagent_tts.text.words import is_spoken

DEFAULT_URL = "ws://127.0.0.1:8765/v1/tts/ws"
_READY_TIMEOUT_S = 5.0
_CONNECT_WAIT_S = 1.0
_WATCH_INTERVAL_S = 0.5
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25
_OUTPUT_RATES_HZ = (8000, 16000, 24000, 48000)
_LARGEST_START_ERROR_S = 0.5
"""A transport that starts further from where it should is playing somebody else's sound."""

_CATEGORIES = {
    ErrorCode.RATE_LIMITED: ErrorCategory.RATE_LIMIT,
    ErrorCode.TOO_MANY_CONTEXTS: ErrorCategory.RATE_LIMIT,
    ErrorCode.OVERLOADED: ErrorCategory.RATE_LIMIT,
    ErrorCode.MODEL_NOT_READY: ErrorCategory.SERVER,
    ErrorCode.DRAINING: ErrorCategory.SERVER,
    ErrorCode.ENGINE_ERROR: ErrorCategory.SERVER,
    ErrorCode.INTERNAL: ErrorCategory.SERVER,
    ErrorCode.CONNECTION_LOST: ErrorCategory.CONNECTIVITY,
}
"""Why one request failed. All others are UNKNOWN: a permanent category would mute the bot for ever
because of one turn's voice or text."""

_TIMED_FRAMES = (
    AggregatedTextFrame,
    AggregatedTextProgressFrame,
    LLMFullResponseEndFrame,
    LLMAssistantPushAggregationFrame,
)
"""Frames whose time stamp Pipecat derives from word times."""


@dataclass
class VoiceAgentTTSSettings(TTSSettings):
    """What may change while the pipeline runs, by `TTSUpdateSettingsFrame(delta=...)`.

    `voice` and `language` are inherited; without a language the server detects it per segment.

    Parameters:
        speed: 0.5 to 2.0, pitch kept, for voices that have it.
        instruct: how to speak, for voices that can be told.
        seed: same seed, same voice, same text: same audio, as far as the engine can.
    """

    speed: float | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    instruct: str | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    seed: int | None | NotGiven = field(default_factory=lambda: NOT_GIVEN)


@dataclass
class _UnspokenFrame(ControlFrame):
    """Behind it in a context's queue comes only text that was not spoken; never leaves."""

    context_id: str = ""


@dataclass(slots=True)
class _Speech:
    """A server context that has not ended; its text, words and audio are in the connection."""

    active_at: float
    words_added: int = 0
    char_end: int = 0
    """End of the text that has been handed on as words."""
    is_ended: bool = False
    is_failed: bool = False
    is_complete: bool = False


class VoiceAgentTTSService(WebsocketTTSService):
    """Speaks LLM text through a voiceagent-tts server, with words that follow the sound.

        tts = VoiceAgentTTSService(settings=VoiceAgentTTSService.Settings(voice="default"))
        Pipeline([..., llm, tts, transport.output(), context_aggregator.assistant()])

    Nothing slow may stand between the output transport and the assistant's aggregator: the
    history is cut there, at the moment of the interruption.

    Event handlers besides those of `TTSService`:
        on_words: called with `(service, context_id, words)` when word times have arrived, ahead of
            their sound; `words` are `WordTimestamp`s, positions in samples at 24 kHz.

    Args:
        url: the server's WebSocket.
        api_key: sent as a bearer token.
        settings: voice, language and so on; what is not given is the server's choice.
        text_aggregator: how LLM tokens are gathered into the pieces that Pipecat hands on. The
            default hands on clauses early; give Pipecat's own where text transforms need whole
            sentences to work on.
        max_buffer_delay_ms: how long the server may hold text for the rest of its sentence.
        max_lead_s: how far the server may run ahead of playback.
        response_timeout_s: a turn fails when the server owes sound and is silent for this long.
        output_latency_s: how much of a word was played before it counts as heard; add what your
            transport buffers on its way to the ear.
        reconnect_attempts: after these the service is unusable; they are 0.25 s apart.
        **kwargs: arguments of `WebsocketTTSService`.
    """

    Settings = VoiceAgentTTSSettings

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        settings: Settings | None = None,
        text_aggregator: BaseTextAggregator | None = None,
        text_aggregation_mode: TextAggregationMode | None = None,
        max_buffer_delay_ms: int | None = None,
        max_lead_s: float | None = None,
        response_timeout_s: float = 10.0,
        output_latency_s: float = 0.02,
        reconnect_attempts: int = 240,
        **kwargs: Any,
    ) -> None:
        defaults = self.Settings(
            model=None, voice=None, language=None, speed=None, instruct=None, seed=None
        )
        if settings is not None:
            defaults.apply_update(settings)
        kwargs.setdefault("stop_frame_timeout_s", 2 * response_timeout_s)
        kwargs.setdefault("reconnect_backoff_min_wait", _RECONNECT_WAIT_S)
        kwargs.setdefault("reconnect_backoff_max_wait", _RECONNECT_WAIT_S)
        # The server says why a turn was silent; three overloads in a row must not mute the bot.
        kwargs.setdefault("max_consecutive_zero_audio_contexts", 0)
        super().__init__(
            push_text_frames=False,
            push_start_frame=True,
            push_stop_frames=False,
            pause_frame_processing=False,
            text_aggregation_mode=text_aggregation_mode,
            settings=defaults,
            **kwargs,
        )
        if text_aggregator is not None:
            self._text_aggregator = text_aggregator
        elif text_aggregation_mode is not TextAggregationMode.TOKEN:
            self._text_aggregator = ClauseAggregator(language=self.text_aggregation_language)
        self._register_event_handler("on_words")
        self._url = url
        self._api_key = api_key
        self._max_buffer_delay_ms = max_buffer_delay_ms
        self._max_lead_s = max_lead_s
        self._response_timeout_s = response_timeout_s
        self._reconnect_attempts = reconnect_attempts
        self._connection = ClientConnection()
        self._is_ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._speeches: dict[str, _Speech] = {}
        self._playout = _Playout(output_latency_s)
        self._spacing = VerbatimSpacing()
        self._unspoken_context_id: str | None = None

    def can_generate_metrics(self) -> bool:
        """Yes: time to first byte, to first audio, and characters."""
        return True

    def language_to_service_language(self, language: Language) -> str | None:
        """The code itself, region included: the server knows codes and regions."""
        return str(language.value)

    # Connection.

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connect, so that the socket is warm before the first turn."""
        await super().setup(setup)
        await self._connect()

    async def _connect(self) -> None:
        await super()._connect()
        try:
            await self._connect_websocket()
        except Exception as error:  # the reader tries again, and ends with a permanent error
            await self._report_error(_connection_error(error))
        await self._cancel_tasks()
        reader = self.create_task(self._receive_task_handler(self._report_error))
        self._tasks = [reader, self.create_task(self._watch())]

    async def _disconnect(self) -> None:
        await super()._disconnect()
        await self._cancel_tasks()
        await self._disconnect_websocket()
        self._speeches.clear()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _connect_websocket(self) -> None:
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else None
        websocket = await self._websocket_connect(
            self._url,
            additional_headers=headers,
            subprotocols=[SUBPROTOCOL],
            compression=None,
            max_size=MAX_SERVER_MESSAGE_BYTES,
        )
        connection = ClientConnection()
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                while connection.ready is None:
                    event = connection.receive(await websocket.recv())
                    if isinstance(event, ErrorMessage):
                        raise event.to_error()
        except BaseException:
            await websocket.close()
            raise
        self._websocket, self._connection = websocket, connection
        self._is_ready.set()
        await self._call_event_handler("on_connected")

    async def _disconnect_websocket(self) -> None:
        websocket, self._websocket = self._websocket, None
        self._is_ready.clear()
        if websocket is not None:
            await self.stop_all_metrics()
            await websocket.close()
            await self._call_event_handler("on_disconnected")

    async def _try_reconnect(
        self, max_retries: int = 3, report_error: ReportErrorCallback | None = None
    ) -> bool:
        # Three attempts would give up on a server that takes seconds to restart.
        report = None if report_error is None else _ReportChanges(report_error)
        return await super()._try_reconnect(self._reconnect_attempts, report)

    async def _receive_messages(self) -> None:
        websocket = self._websocket
        if websocket is None:
            raise ConnectionLostError(f"no connection to {self._url}")
        # Pipecat gives a service up for good when three connections end soon. A server that has
        # said `ready` refuses nobody, so that those were faults of the network, or restarts.
        self._last_connect_time = 0.0
        began_s = self._now_s()
        try:
            async for data in websocket:
                event = self._connection.receive(data)
                if event is not None:
                    await self._take(event)
        except ConnectionClosed:
            pass  # without a closing handshake; treated like one
        except ProtocolError as error:
            await self.push_error(error.message, error, category=ErrorCategory.UNKNOWN)
            await websocket.close(1002)
        lost = ConnectionLostError("the connection to the server was lost in the middle of a turn")
        for context_id in list(self._speeches):
            await self._fail(context_id, lost)
        if self._now_s() - began_s < _SHORT_CONNECTION_S:
            await asyncio.sleep(_RECONNECT_WAIT_S)  # the first attempt would come at once

    async def _send(self, message: str) -> None:
        if self._websocket is None:
            raise ConnectionLostError(f"no connection to {self._url}")
        await self._websocket.send(message)

    # Text to the server.

    async def on_turn_context_created(self, context_id: str) -> None:
        """Open the context while the LLM is still thinking, so that the server can prepare."""
        if self._is_ready.is_set():
            with contextlib.suppress(ConnectionClosed, VoiceAgentError):
                await self._open(context_id)

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Send a piece of the turn's text; its sound arrives on the reader's task."""
        try:
            await self._wait_until_ready()
            if context_id not in self._speeches:
                await self._open(context_id)
            await self._send_text(context_id, text)
            await self.start_tts_usage_metrics(text)
        except (VoiceAgentError, ConnectionClosed) as error:
            self._speeches.setdefault(context_id, _Speech(self._now_s()))
            await self._fail(context_id, _as_own(error))
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """No more text for this context."""
        context_id = context_id or self.get_active_audio_context_id()
        speech = self._speeches.get(context_id) if context_id else None
        if speech is None or context_id is None or speech.is_ended:
            return
        speech.is_ended = True
        if speech.is_failed:
            await self.remove_audio_context(context_id)
            return
        speech.active_at = self._now_s()
        with contextlib.suppress(ConnectionClosed, VoiceAgentError):  # the reader reports the loss
            await self._send(self._connection.end(context_id))

    async def on_turn_context_completed(self) -> None:
        """End the turn on the server, also one that got no text, such as a bare function call."""
        context_id = self._turn_context_id
        await super().on_turn_context_completed()
        if context_id and not self.audio_context_available(context_id):
            await self._abandon(context_id)

    async def _wait_until_ready(self) -> None:
        if not self._tasks or self._tasks[0].done():
            await self._connect()
        try:
            async with asyncio.timeout(_CONNECT_WAIT_S):
                await self._is_ready.wait()
        except TimeoutError:
            raise ConnectionLostError(f"no connection to {self._url}") from None

    async def _open(self, context_id: str) -> None:
        await self._send(self._connection.open(context_id, **self._open_options()))
        self._speeches[context_id] = _Speech(self._now_s())

    def _open_options(self) -> OpenOptions:
        settings = self._settings.given_fields()
        settings.pop("model")  # a voice implies its model
        given: dict[str, Any] = settings | {
            "max_buffer_delay_ms": self._max_buffer_delay_ms,
            "max_lead_s": self._max_lead_s,
            "audio": AudioFormat(sample_rate=self._output_rate_hz),
        }
        return OpenOptions(**{name: value for name, value in given.items() if value is not None})

    @property
    def _output_rate_hz(self) -> Any:
        """The pipeline's rate where the server has it; otherwise the transport resamples."""
        return self.sample_rate if self.sample_rate in _OUTPUT_RATES_HZ else SAMPLE_RATE_HZ

    async def _send_text(self, context_id: str, text: str) -> None:
        speech = self._speeches[context_id]
        if speech.is_failed:
            return  # the rest of a failed turn stays unspoken
        sent = self._connection.record(context_id).text
        speech.active_at = self._now_s()
        await self._send(self._connection.text(context_id, joint(sent, text) + text))

    # Sound and words from the server.

    async def _take(self, event: ClientEvent) -> None:
        match event:
            case ClientAudio(context_id) | WordsMessage(context_id=context_id):
                await self._take_speech(context_id, event)
            case DoneMessage(context_id=context_id):
                await self._finish(context_id, event)
            case ErrorMessage(context_id=str(context_id)):
                await self._fail(context_id, event.to_error())
            case ErrorMessage():
                await self.push_error(event.message, category=ErrorCategory.UNKNOWN)
            case _:
                pass
        if self._connection.is_draining and not self._speeches and self._websocket:
            await self._websocket.close()  # the reader finds the next server

    async def _take_speech(self, context_id: str, event: ClientAudio | WordsMessage) -> None:
        speech = self._speeches.get(context_id)
        if speech is None or speech.is_failed:
            return  # still on its way when the context was cancelled
        speech.active_at = self._now_s()
        if isinstance(event, WordsMessage):
            await self._call_event_handler("on_words", context_id, event.timestamps())
        else:
            rate_hz = self._output_rate_hz
            frame = TTSAudioRawFrame(event.pcm, rate_hz, 1, context_id=context_id)
            await self.append_to_audio_context(context_id, frame)
        await self._add_words(context_id, speech)

    async def _add_words(self, context_id: str, speech: _Speech, *, is_final: bool = False) -> None:
        """Queue the words that can be heard in the sound that has been queued.

        Behind its frame, a word's time is known; one whose sound breaks off before it can be heard
        is not committed.
        """
        record = self._connection.record(context_id)
        received = record.samples_received * SAMPLE_RATE_HZ / record.audio.sample_rate
        heard = received - self._playout.latency_s * SAMPLE_RATE_HZ
        due: list[tuple[str, float]] = []
        for timestamp in record.words[speech.words_added :]:
            if timestamp.start_sample >= heard and not is_final:
                break
            due.append(_pipecat_word(record.text, speech.char_end, timestamp))
            speech.char_end = timestamp.word.char_end
        speech.words_added += len(due)
        await self.add_word_timestamps(due, context_id)

    async def _finish(self, context_id: str, done: DoneMessage) -> None:
        speech = self._speeches.get(context_id)
        if speech is None or speech.is_failed:
            return
        record = self._connection.record(context_id)
        if done.reason not in ("complete", "idle"):
            await self._fail(context_id, EngineError(f"the server ended a turn: {done.reason}"))
            return
        await self._add_words(context_id, speech, is_final=True)
        speech.is_complete = record.samples_received > 0
        if not speech.is_ended:
            self._move_turn_from(context_id)
        if self.audio_context_available(context_id):
            await self.remove_audio_context(context_id)
        self._speeches.pop(context_id, None)

    # Failure and interruption.

    async def _fail(self, context_id: str, error: VoiceAgentError) -> None:
        """Report why a turn stays silent; what has not been queued as spoken never will be."""
        speech = self._speeches.get(context_id)
        if speech is None or speech.is_failed:
            return
        speech.is_failed = True
        with contextlib.suppress(ConnectionClosed, VoiceAgentError):
            await self._send(self._connection.cancel(context_id))
        category = _CATEGORIES.get(error.code, ErrorCategory.UNKNOWN)
        await self.push_error(f"{error.code}: {error.message}", category=category)
        if self.audio_context_available(context_id):
            await self.append_to_audio_context(context_id, _UnspokenFrame(context_id))
            if speech.is_ended:
                await self.remove_audio_context(context_id)

    async def remove_audio_context(self, context_id: str | None) -> None:
        """End a context's queue, with what says whether all of its text was spoken."""
        speech = self._speeches.pop(context_id, None) if context_id else None
        if speech is not None and context_id is not None:
            if not speech.is_complete and not speech.is_failed:
                await self.append_to_audio_context(context_id, _UnspokenFrame(context_id))
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
        await super().remove_audio_context(context_id)

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Stop the server at once, and tell it how much was heard."""
        await self._abandon(context_id)
        await self.stop_all_metrics()
        await super().on_audio_context_interrupted(context_id)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Handle a frame; an interruption also ends contexts that Pipecat has not opened yet."""
        await super().process_frame(frame, direction)
        if isinstance(frame, BotStartedSpeakingFrame) and direction is FrameDirection.UPSTREAM:
            self._playout.started(self._now_s())
        elif isinstance(frame, InterruptionFrame):
            for context_id in list(self._speeches):
                if not self.audio_context_available(context_id):
                    await self._abandon(context_id)

    async def _abandon(self, context_id: str) -> None:
        speech = self._speeches.pop(context_id, None)
        if speech is None or speech.is_failed:
            return
        played_ms = self._playout.played_ms(context_id, self._now_s())
        with contextlib.suppress(ConnectionClosed, VoiceAgentError):
            await self._send(self._connection.cancel(context_id, played_ms))

    async def _watch(self) -> None:
        """Fail the turns of a server that has gone silent, before Pipecat ends them as spoken."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            for context_id, speech in list(self._speeches.items()):
                silent_s = self._now_s() - speech.active_at
                if silent_s > self._response_timeout_s and self._is_owed(context_id, speech):
                    silence = EngineError(f"no answer from the server for {silent_s:.0f} s")
                    await self._fail(context_id, silence)

    def _is_owed(self, context_id: str, speech: _Speech) -> bool:
        if speech.is_failed:
            return False
        text = self._connection.record(context_id).text
        return speech.is_ended or is_spoken(text[speech.char_end :])

    # Settings.

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:
        """Apply a change; the next piece of text opens a context that speaks with it."""
        changed = await super()._update_settings(delta)
        if changed and self._turn_context_id:
            context_id = self._turn_context_id
            if self.audio_context_available(context_id):
                await self.flush_audio(context_id)
            else:
                await self._abandon(context_id)
            self._move_turn_from(context_id)
        return changed

    def _move_turn_from(self, context_id: str) -> None:
        """Let what is left of the turn be spoken in a context of its own."""
        if self._turn_context_id == context_id:
            self._turn_context_id = None  # or `create_context_id` returns it again
            self._turn_context_id = self.create_context_id()

    # What leaves for the transport.

    async def start_word_timestamps(self) -> None:
        """Note the time that Pipecat counts this context's words from."""
        await super().start_word_timestamps()
        self._playout.baseline_s = self._word_timestamp_tracker.pts(0.0) / 1e9

    async def push_frame(
        self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM
    ) -> None:
        """Push a frame, timed by the playback of the sound that has left before it."""
        if direction is FrameDirection.DOWNSTREAM and not self._note(frame):
            return
        await super().push_frame(frame, direction)

    def _note(self, frame: Frame) -> bool:
        """Keep the books of what leaves; False for what must not."""
        match frame:
            case _UnspokenFrame():
                self._unspoken_context_id = frame.context_id
                return False
            case TTSTextFrame() | AggregatedTextProgressFrame():
                if not self._is_spoken(frame.context_id):
                    return False
                if isinstance(frame, TTSTextFrame) and frame.append_to_context:
                    self._spacing.apply(frame)
            case AggregatedTextFrame() if frame.will_be_spoken:
                self._spacing.announce(frame)
            case LLMFullResponseStartFrame() | LLMAssistantPushAggregationFrame():
                self._spacing.start_reply()
            case InterruptionFrame():
                self._spacing.clear()
                self._playout.interrupt()
            case TTSStartedFrame():
                self._playout.start(frame.context_id)
            case TTSAudioRawFrame():
                self._playout.play(frame, self._now_s())
            case _:
                pass
        if isinstance(frame, _TIMED_FRAMES) and frame.pts:
            frame.pts += self._playout.correction_ns
        return True

    def _is_spoken(self, context_id: str | None) -> bool:
        """Whether text that leaves now was spoken; Pipecat takes all of an ended context for it."""
        has_sound = context_id is None or self._playout.has_sound(context_id)
        return has_sound and context_id != self._unspoken_context_id

    def _now_s(self) -> float:
        return self.get_clock().get_time() / 1e9


class _Playout:
    """Where the sound that has left is in the transport's playback.

    Pipecat times the words of a context from the moment its first audio left, as if it played on
    without a gap and began where the last word before it did. The difference to where the sound
    really is (after a stall, behind the sound of another context, or as late as the transport
    began) is `correction_ns`.
    """

    def __init__(self, latency_s: float) -> None:
        self.baseline_s = 0.0
        self.correction_ns = 0
        self.latency_s = latency_s
        self._context_id: str | None = None
        self._clock = PlayoutClock()
        self._awaited_start_s: float | None = None
        self._is_interruptible = True

    def start(self, context_id: str | None) -> None:
        """The sound of `context_id` follows that of the last."""
        if context_id == self._context_id:
            return  # Pipecat has opened it again after a long silence
        playout_end = self._clock.playout_end
        self._context_id, self._clock = context_id, PlayoutClock()
        self._clock.playout_end = playout_end

    def play(self, frame: TTSAudioRawFrame, now_s: float) -> None:
        """`frame` leaves at `now_s`; it is heard behind what left before."""
        position_s = self._clock.sent_samples / SAMPLE_RATE_HZ
        samples = len(frame.audio) // BYTES_PER_SAMPLE * SAMPLE_RATE_HZ // frame.sample_rate
        self._clock.send(samples, now_s)
        begin_s = self._clock.playout_end - samples / SAMPLE_RATE_HZ
        if position_s == 0:
            self._awaited_start_s = begin_s
        shift_s = begin_s - position_s - self.baseline_s + self.latency_s
        self.correction_ns = round(shift_s * 1e9)
        self._is_interruptible = frame.interruptible

    def started(self, now_s: float) -> None:
        """The transport has begun to play the context, which may be later than thought."""
        if self._awaited_start_s is None:
            return
        late_s = now_s - self._awaited_start_s
        self._awaited_start_s = None
        if abs(late_s) < _LARGEST_START_ERROR_S:
            self._clock.playout_end += late_s
            self.correction_ns += round(late_s * 1e9)

    def has_sound(self, context_id: str) -> bool:
        """Whether any sound of `context_id` has left."""
        return context_id == self._context_id and self._clock.sent_samples > 0

    def interrupt(self) -> None:
        """The transport drops what it holds, except what may not be interrupted."""
        self._awaited_start_s = None
        if self._is_interruptible:
            self._clock.playout_end = 0.0

    def played_ms(self, context_id: str, now_s: float) -> int:
        """How much of `context_id` has been heard, gaps excluded."""
        if context_id != self._context_id:
            return 0
        return samples_to_ms(self._clock.played_samples(now_s))


class _ReportChanges:
    """Reports an outage once, not with each attempt, and again when its reason changes."""

    def __init__(self, report: ReportErrorCallback) -> None:
        self._report = report
        self._last: type[Exception] | None = None

    async def __call__(self, error: ErrorFrame, force_treat_as_permanent: bool = False) -> None:
        kind = type(error.exception) if error.exception else None
        if force_treat_as_permanent or kind is not self._last:
            self._last = kind
            await self._report(error, force_treat_as_permanent)


def _pipecat_word(text: str, char_end: int, timestamp: WordTimestamp) -> tuple[str, float]:
    """All of `text` from the last word's end to this one's, and where it sounds in seconds."""
    word = text[char_end : timestamp.word.char_end].strip()
    return word, timestamp.start_sample / SAMPLE_RATE_HZ


def _connection_error(error: Exception) -> ErrorFrame:
    return ErrorFrame(f"no connection to the server: {error}", exception=error)


def _as_own(error: Exception) -> VoiceAgentError:
    if isinstance(error, VoiceAgentError):
        return error
    return ConnectionLostError("the connection to the server was lost in the middle of a turn")
