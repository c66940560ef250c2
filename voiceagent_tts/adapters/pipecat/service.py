"""`VoiceAgentTTSService`: this server as a Pipecat text-to-speech service.

One socket for the life of the pipeline, and the words of a turn in the conversation's history
exactly as far as they were heard: a word leaves with its sound, timed by where that sound is in the
transport's playback, gaps included. Text goes out clause by clause and comes back verbatim
(`adapters.pipecat.text`).

A turn is spoken by a server context. Where that breaks off (the connection is lost, the engine
dies, the server is silent or overloaded), another speaks the rest from the word that broke off
(`adapters.turn`), in the same audio context of Pipecat; text that comes meanwhile is part
of the rest. A turn fails when that is no use: a few times in a row without a word, or at once where
the request itself is wrong. What it never spoke is not committed.

Knows no engine and no server, only the wire (`protocol.ClientConnection`) and Pipecat's public
service API. The private names of Pipecat that it touches are those of its own services:
`_turn_context_id`, `_text_aggregator`, `_word_timestamp_tracker`, `_last_connect_time`,
`_aggregated_frame_sequencer`, `_push_sequencer_frames`, `_apply_context_interruptible`,
`_refresh_audio_context`, and the connection hooks.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, get_args

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
from pipecat.services.websocket_service import ReportErrorCallback, WebsocketService
from pipecat.transcriptions.language import Language
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.text.base_text_aggregator import BaseTextAggregator
from pipecat.utils.tracing.service_decorators import traced_tts
from pipecat.utils.types import NOT_GIVEN, NotGiven
from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.exceptions import ConnectionClosed

from voiceagent_tts.adapters.pipecat.text import ClauseAggregator, VerbatimSpacing, joint
from voiceagent_tts.adapters.turn import Turn
from voiceagent_tts.client import MAX_SERVER_MESSAGE_BYTES, authorization
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, PlayoutClock, samples_to_ms
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    VoiceAgentError,
)
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientConnection,
    ClientEvent,
)
from voiceagent_tts.protocol.messages import (
    SUBPROTOCOL,
    AudioFormat,
    DoneMessage,
    ErrorMessage,
    OpenOptions,
    SampleRate,
    WordsMessage,
)
from voiceagent_tts.protocol.refusals import ProtocolError

DEFAULT_URL = "ws://127.0.0.1:8765/v1/tts/ws"
_READY_TIMEOUT_S = 5.0
_CONNECT_WAIT_S = 1.0
"""For so long an attempt to speak waits for the connection."""
_WATCH_INTERVAL_S = 0.5
_SHORT_CONNECTION_S = 1.0
_RECONNECT_WAIT_S = 0.25
_RESTART_S = 0.02
"""A transport that ran dry in mid-turn needs about so long until it plays what it is given."""
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


class VoiceAgentTTSService(WebsocketTTSService):
    """Speaks LLM text through a voiceagent-tts server, with words that follow the sound.

        tts = VoiceAgentTTSService(settings=VoiceAgentTTSService.Settings(voice="default"))
        Pipeline([..., llm, tts, transport.output(), context_aggregator.assistant()])

    Nothing slow may stand between the output transport and the assistant's aggregator: the
    history is cut there, at the moment of the interruption.

    Event handlers besides those of `TTSService`:
        on_words: called with `(service, context_id, words)` when word times have arrived, ahead of
            their sound; `words` are `WordTimestamp`s, positions in samples at 24 kHz of the turn's
            sound, characters of its text. Where a turn broke off and goes on, words come again
            from there: they replace those told before.

    Args:
        url: the server's WebSocket.
        api_key: sent as a bearer token.
        settings: voice, language and so on, and other options of a context by name in `extra`; what
            is not given is the server's choice.
        text_aggregator: how LLM tokens are gathered into the pieces that Pipecat hands on. The
            default hands on clauses early; give Pipecat's own where text transforms need whole
            sentences to work on.
        max_buffer_delay_ms: how long the server may hold text for the rest of its sentence.
        max_lead_s: how far the server may run ahead of playback.
        response_timeout_s: a turn breaks off when the server owes sound and is silent for this
            long.
        output_latency_s: how much of a word was played before it counts as heard; add what your
            transport buffers on its way to the ear.
        reconnect_attempts: after these the service is unusable; they are 0.25 s apart.
        **kwargs: arguments of `WebsocketTTSService`.

    Raises:
        ValueError: `settings.extra` has what a server cannot be told.
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
            _refuse_unknown(settings)
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
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()  # contexts can be opened
        self._heard_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: dict[str, Turn] = {}
        self._resuming: dict[str, asyncio.Task[None]] = {}
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
        for context_id in list(self._resuming):
            await self._stop_resuming(context_id)
        self._turns.clear()
        if self._websocket is not None:
            await self.stop_all_metrics()
        await self._disconnect_websocket()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _connect_websocket(self) -> None:
        websocket = await self._websocket_connect(
            self._url,
            additional_headers=authorization(self._api_key or None),
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
        self._outbox, self._heard_at = asyncio.Queue(), self._now_s()
        self._writer = self.create_task(self._write(websocket, self._outbox))
        self._is_ready.set()
        await self._call_event_handler("on_connected")

    async def _disconnect_websocket(self) -> None:
        websocket, self._websocket = self._websocket, None
        self._is_ready.clear()
        if self._writer is not None:
            await self.cancel_task(self._writer)
            self._writer = None
        if websocket is not None:
            await websocket.close()
            await self._call_event_handler("on_disconnected")

    async def _reconnect_websocket(self, attempt_number: int) -> bool:
        # Pipecat's WebSocket services end their audio contexts here; ours go on.
        return await WebsocketService._reconnect_websocket(self, attempt_number)

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
                self._heard_at = self._now_s()
                event = self._connection.receive(data)
                if event is not None:
                    await self._take(event)
        except ConnectionClosed:
            pass  # without a closing handshake; treated like one
        except ProtocolError as error:
            await self.push_error(error.message, error, category=ErrorCategory.UNKNOWN)
            await websocket.close(1002)
        self._is_ready.clear()
        lost = ConnectionLostError("the connection to the server was lost in the middle of a turn")
        for turn in list(self._turns.values()):
            await self._break_off(turn, lost)
        if self._now_s() - began_s < _SHORT_CONNECTION_S:
            await asyncio.sleep(_RECONNECT_WAIT_S)  # the first attempt would come at once

    async def _write(self, websocket: WebSocket, outbox: asyncio.Queue[str]) -> None:
        with contextlib.suppress(ConnectionClosed):  # the reader sees the loss
            while True:
                await websocket.send(await outbox.get())

    def _say(self, message: str) -> None:
        """Send in order, and without waiting; what is said on a lost connection is dropped."""
        self._outbox.put_nowait(message)

    # Text to the server.

    async def on_turn_context_created(self, context_id: str) -> None:
        """Open the context while the LLM is still thinking, so that the server can prepare."""
        if context_id in self._turns:
            return  # the reply has begun again before its end
        turn = self._add_turn(context_id)
        if self._is_ready.is_set():
            with contextlib.suppress(VoiceAgentError):  # it is opened again with the first text
                self._open(turn)

    @traced_tts
    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Take a piece of the turn's text; its sound arrives on the reader's task."""
        turn = self._turns.get(context_id) or self._add_turn(context_id)
        if not turn.is_failed:
            if not self._tasks or self._tasks[0].done():
                await self._connect()
            await self._speak(turn, joint(turn.text, text) + text)
            await self.start_tts_usage_metrics(text)
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """No more text for this context."""
        context_id = context_id or self.get_active_audio_context_id()
        turn = self._turns.get(context_id) if context_id else None
        if turn is None or turn.is_ended:
            return
        turn.is_ended, turn.active_at = True, self._now_s()
        if turn.is_failed:
            await self.remove_audio_context(turn.context_id)
        elif turn.record is not None:
            self._say(self._connection.end(turn.record.context_id))
        elif turn.context_id not in self._resuming:
            await self._complete(turn)

    async def on_turn_context_completed(self) -> None:
        """End the turn on the server, also one that got no text, such as a bare function call."""
        context_id = self._turn_context_id
        await super().on_turn_context_completed()
        if context_id and not self.audio_context_available(context_id):
            await self._abandon(context_id)

    def _add_turn(self, context_id: str) -> Turn:
        options, latency_s = self._open_options(), self._playout.latency_s
        turn = Turn(context_id, options, latency_s=latency_s, now_s=self._now_s())
        self._turns[context_id] = turn
        return turn

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
        return self.sample_rate if self.sample_rate in get_args(SampleRate) else SAMPLE_RATE_HZ

    async def _speak(self, turn: Turn, text: str) -> None:
        turn.text += text
        turn.active_at = self._now_s()
        if turn.record is not None:
            try:
                self._say(self._connection.text(turn.record.context_id, text))
            except VoiceAgentError as error:
                await self._break_off(turn, error)
        elif turn.context_id not in self._resuming:
            self._resume(turn)

    def _open(self, turn: Turn) -> None:
        """Let a server context speak the turn's rest.

        Raises:
            VoiceAgentError: the server takes no context now, an option is wrong, or the text is.
        """
        context_id = turn.next_server_context_id()
        rest = turn.rest
        opening = [self._connection.open(context_id, **turn.options)]
        if rest:
            opening.append(self._connection.text(context_id, rest))
        if turn.is_ended:
            opening.append(self._connection.end(context_id))
        for message in opening:
            self._say(message)
        self._refresh_audio_context(turn.context_id)
        turn.record, turn.active_at = self._connection.record(context_id), self._now_s()

    # Sound and words from the server.

    async def _take(self, event: ClientEvent) -> None:
        turn = self._turn_of(event)
        match event:
            case ClientAudio() if turn:
                await self._take_audio(turn, event)
            case WordsMessage() if turn:
                turn.active_at = self._now_s()
                words = [turn.moved(timestamp) for timestamp in event.timestamps()]
                await self._call_event_handler("on_words", turn.context_id, words)
                await self.add_word_timestamps(turn.take_words(), turn.context_id)
            case DoneMessage() if turn:
                await self._finish(turn, event)
            case ErrorMessage() if turn:
                await self._break_off(turn, event.to_error())
            case ErrorMessage(context_id=None):
                await self.push_error(event.message, category=ErrorCategory.UNKNOWN)
            case _:
                pass  # its context was left, or it says nothing that matters here
        if self._connection.is_draining:
            self._is_ready.clear()
            if not self._is_finishing and self._websocket is not None:
                await self._websocket.close()  # the reader finds the next server

    def _turn_of(self, event: ClientEvent) -> Turn | None:
        context_id = getattr(event, "context_id", None)
        turns = self._turns.values()
        return next((turn for turn in turns if turn.is_spoken_by(context_id)), None)

    async def _take_audio(self, turn: Turn, audio: ClientAudio) -> None:
        turn.active_at = self._now_s()
        frame = TTSAudioRawFrame(audio.pcm, self._output_rate_hz, 1, context_id=turn.context_id)
        await self.append_to_audio_context(turn.context_id, frame)
        # Behind its frame, a word's time is known; one whose sound breaks off before it can be
        # heard is not committed.
        await self.add_word_timestamps(turn.take_words(), turn.context_id)

    async def _finish(self, turn: Turn, done: DoneMessage) -> None:
        if done.reason not in ("complete", "idle"):
            ended = EngineError(f"the server ended a turn: {done.reason}")
            await self._break_off(turn, ended)
            return
        words = turn.finish(done)
        has_rest = bool(turn.rest.strip())  # it was on its way when the server was idle
        if has_rest:
            self._resume(turn)
        await self.add_word_timestamps(words, turn.context_id)
        if not has_rest:
            await self._complete(turn)

    async def _complete(self, turn: Turn) -> None:
        """All text of the turn is spoken; what still comes is spoken in another."""
        turn.is_complete = turn.samples > 0
        if not turn.is_ended:
            await self._move_turn_from(turn.context_id)
        if self.audio_context_available(turn.context_id):
            await self.remove_audio_context(turn.context_id)
        self._turns.pop(turn.context_id, None)

    # Failure and interruption.

    async def _break_off(self, turn: Turn, error: VoiceAgentError) -> None:
        """What spoke the turn is of no more use; its rest may be spoken by another context."""
        if turn.record is None:
            return  # it was interrupted
        self._say(self._connection.cancel(turn.record.context_id))
        words = turn.break_off()
        has_rest = bool(turn.rest.strip())
        if has_rest or not error.is_retryable:
            self._resume(turn, error)
        await self.add_word_timestamps(words, turn.context_id)
        if not has_rest and error.is_retryable and turn.is_ended:
            await self._complete(turn)

    def _resume(self, turn: Turn, error: VoiceAgentError | None = None) -> None:
        """Let the turn's rest be spoken as soon as the server takes it; `error` broke it off."""
        speaking = self.create_task(self._speak_rest(turn, error))
        self._resuming[turn.context_id] = speaking

    async def _speak_rest(self, turn: Turn, error: VoiceAgentError | None) -> None:
        wait_s = 0.0 if error is None else turn.retry_wait_s(error)
        while wait_s is not None:
            self._refresh_audio_context(turn.context_id)  # or Pipecat ends it as spoken
            await asyncio.sleep(min(wait_s, self._response_timeout_s))
            error = await self._try_to_open(turn)
            wait_s = None if error is None else turn.retry_wait_s(error)
        del self._resuming[turn.context_id]
        if error is not None:
            await self._fail(turn, error)

    async def _try_to_open(self, turn: Turn) -> VoiceAgentError | None:
        try:
            await self._wait_until_ready()
            self._open(turn)
        except TimeoutError:
            return ConnectionLostError(f"no connection to {self._url}")
        except VoiceAgentError as error:
            return error
        return None

    async def _wait_until_ready(self) -> None:
        while not self._is_ready.is_set():
            try:
                async with asyncio.timeout(_CONNECT_WAIT_S):
                    await self._is_ready.wait()
            except TimeoutError:
                if not self._is_finishing:
                    raise

    @property
    def _is_finishing(self) -> bool:
        """Whether a draining server still speaks; the next one is found behind it."""
        is_speaking = any(turn.record is not None for turn in self._turns.values())
        return self._connection.is_draining and is_speaking

    async def _stop_resuming(self, context_id: str) -> None:
        speaking = self._resuming.pop(context_id, None)
        if speaking is not None:
            await self.cancel_task(speaking)

    async def _fail(self, turn: Turn, error: VoiceAgentError) -> None:
        """Report why a turn stays silent; what has not been queued as spoken never will be."""
        turn.is_failed = True
        category = _CATEGORIES.get(error.code, ErrorCategory.UNKNOWN)
        await self.push_error(f"{error.code}: {error.message}", category=category)
        if self.audio_context_available(turn.context_id):
            await self.append_to_audio_context(turn.context_id, _UnspokenFrame(turn.context_id))
            if turn.is_ended:
                await self.remove_audio_context(turn.context_id)

    async def remove_audio_context(self, context_id: str | None) -> None:
        """End a context's queue, with what says whether all of its text was spoken."""
        turn = self._turns.pop(context_id, None) if context_id else None
        if turn is not None:
            await self._stop_resuming(turn.context_id)
            if not turn.is_complete and not turn.is_failed:
                await self.append_to_audio_context(context_id, _UnspokenFrame(turn.context_id))
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
            for context_id in list(self._turns):
                if not self.audio_context_available(context_id):
                    await self._abandon(context_id)

    async def _abandon(self, context_id: str) -> None:
        turn = self._turns.pop(context_id, None)
        if turn is None:
            return
        if turn.record is not None:
            played_ms = turn.played_ms(self._playout.played_ms(context_id, self._now_s()))
            self._say(self._connection.cancel(turn.record.context_id, played_ms))
            turn.record = None
        await self._stop_resuming(context_id)

    async def _watch(self) -> None:
        """Break off the turns of a silent server, before Pipecat ends them as spoken."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            now_s = self._now_s()
            silent = [
                turn
                for turn in self._turns.values()
                if turn.is_owed_sound and now_s - turn.active_at > self._response_timeout_s
            ]
            if not silent:
                continue
            is_mute = now_s - self._heard_at > self._response_timeout_s
            if is_mute:
                self._is_ready.clear()
            for turn in silent:
                silent_s = now_s - turn.active_at
                silence = EngineError(f"no answer from the server for {silent_s:.0f} s")
                await self._break_off(turn, silence)
            if is_mute and self._websocket is not None:
                self._websocket.transport.abort()  # its way to the server may be lost in silence

    # Settings.

    async def _update_settings(self, delta: TTSSettings) -> dict[str, Any]:
        """Apply a change; the next piece of text opens a context that speaks with it.

        Raises:
            ValueError: `extra` has what a server cannot be told.
        """
        _refuse_unknown(delta)
        changed = await super()._update_settings(delta)
        if changed and self._turn_context_id:
            context_id = self._turn_context_id
            await self._move_turn_from(context_id)
            if self.audio_context_available(context_id):
                await self.flush_audio(context_id)
            else:
                await self._abandon(context_id)
        return changed

    async def _move_turn_from(self, context_id: str) -> None:
        """Let what is left of the turn be spoken in a context of its own."""
        if self._turn_context_id == context_id:
            # A sentence of tokens waits for the next to begin, which it will not in this context.
            sentence = await self._aggregated_frame_sequencer.finalize(context_id)
            await self._push_sequencer_frames(sentence, context_id)
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
                self._apply_context_interruptible(frame)  # which Pipecat does only as it pushes
                self._playout.play(frame, self._now_s())
            case _:
                pass
        if isinstance(frame, _TIMED_FRAMES) and frame.pts:
            frame.pts = self._playout.corrected_ns(frame.pts)
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
    began) is the correction.
    """

    def __init__(self, latency_s: float) -> None:
        self.baseline_s = 0.0
        self.latency_s = latency_s
        self._context_id: str | None = None
        self._clock = PlayoutClock()
        self._frame_samples = 0  # of the context, at the rate of its frames
        self._correction_ns = 0
        self._last_ns = 0
        self._awaited_start_s: float | None = None
        self._is_interruptible = True

    def start(self, context_id: str | None) -> None:
        """The sound of `context_id` follows that of the last."""
        if context_id == self._context_id:
            return  # Pipecat has opened it again after a long silence
        playout_end = self._clock.playout_end
        self._context_id, self._clock, self._frame_samples = context_id, PlayoutClock(), 0
        self._clock.playout_end = playout_end

    def play(self, frame: TTSAudioRawFrame, now_s: float) -> None:
        """`frame` leaves at `now_s`; it is heard behind what left before."""
        position_s = self._clock.sent_samples / SAMPLE_RATE_HZ
        self._frame_samples += len(frame.audio) // BYTES_PER_SAMPLE
        end_sample = self._frame_samples * SAMPLE_RATE_HZ // frame.sample_rate
        samples = end_sample - self._clock.sent_samples
        if position_s and now_s > self._clock.playout_end:
            now_s += _RESTART_S
        self._clock.send(samples, now_s)
        begin_s = self._clock.playout_end - samples / SAMPLE_RATE_HZ
        if position_s == 0:
            self._awaited_start_s = begin_s
        shift_s = begin_s - position_s - self.baseline_s + self.latency_s
        self._correction_ns = round(shift_s * 1e9)
        self._is_interruptible = frame.interruptible

    def started(self, now_s: float) -> None:
        """The transport has begun to play the context, which may be later than thought."""
        if self._awaited_start_s is None:
            return
        late_s = now_s - self._awaited_start_s
        self._awaited_start_s = None
        if abs(late_s) < _LARGEST_START_ERROR_S:
            self._clock.playout_end += late_s
            self._correction_ns += round(late_s * 1e9)

    def corrected_ns(self, pts: int) -> int:
        """Where `pts` really is; never before what left earlier, or it would overtake that."""
        self._last_ns = max(self._last_ns, pts + self._correction_ns)
        return self._last_ns

    def has_sound(self, context_id: str) -> bool:
        """Whether any sound of `context_id` has left."""
        return context_id == self._context_id and self._clock.sent_samples > 0

    def interrupt(self) -> None:
        """The transport drops what it holds, except what may not be interrupted."""
        self._awaited_start_s = None
        if self._is_interruptible:
            self._clock.playout_end = 0.0
            self._last_ns = 0

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


def _refuse_unknown(settings: TTSSettings) -> None:
    known = OpenOptions.__annotations__.keys()
    unknown = settings.extra.keys() - known
    if unknown:
        expected, came = ", ".join(sorted(known)), ", ".join(sorted(unknown))
        raise ValueError(f"settings.extra: expected options of a context ({expected}); came {came}")


def _connection_error(error: Exception) -> ErrorFrame:
    return ErrorFrame(f"no connection to the server: {error}", exception=error)
