"""`TurnTTSService`: speaks turns through server contexts, and resumes those that break off.

A turn is spoken by one server context. When that breaks off (the connection is lost, the engine
dies, the server is silent or overloaded), another context speaks the rest, from the word that broke
off, in the same audio context of Pipecat; text that arrives meanwhile belongs to the rest. The
service retries while the listener has audio left to hear, and then for `response_timeout_s` of
silence, or less if Pipecat has another service to fail over to. Then the turn fails. It fails at
once if the request itself is wrong.
"""

import asyncio
import contextlib
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, ParamSpec, get_args
from uuid import uuid4

from loguru import logger
from pipecat.frames.frames import CancelFrame, EndFrame, ErrorFrame, TTSAudioRawFrame
from pipecat.processors.filters.function_filter import FunctionFilter
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.tts_service import TTSService
from pipecat.utils.errors import ErrorCategory
from pipecat.utils.tracing.tracing_context import TracingContext
from websockets.exceptions import InvalidStatus

from voiceagent_tts.adapters.options import checked_connection
from voiceagent_tts.adapters.pipecat.connection import Connection, ConnectionHooks
from voiceagent_tts.adapters.pipecat.output import AudioEndFrame, KeepAliveFrame
from voiceagent_tts.adapters.pipecat.turn import PipecatTurn, SpokenWord
from voiceagent_tts.adapters.turn import UNSPOKEN_MS, TurnState, silence
from voiceagent_tts.client import ClientSocket, connection_problem, public_address, refusal
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError, EngineError, ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientEvent,
    timestamps_of,
)
from voiceagent_tts.protocol.messages import (
    DoneMessage,
    ErrorMessage,
    SampleRate,
    WarningMessage,
    WordsMessage,
)

_CONNECT_WAIT_S = 1.0
"""How long one attempt to open a context waits for the connection."""
_FAILOVER_S = 1.0
"""How long the listener waits in silence until another service takes over."""
_CHECK_INTERVAL_S = 0.5
"""Time between two checks for turns whose server is silent."""
_PAUSE_AFTER_ERROR_S = 0.1
"""Time from an unexpected error until a task goes on: the error may come again at once."""

_CATEGORIES = {
    ErrorCode.RATE_LIMITED: ErrorCategory.RATE_LIMIT,
    ErrorCode.TOO_MANY_CONTEXTS: ErrorCategory.RATE_LIMIT,
    ErrorCode.OVERLOADED: ErrorCategory.RATE_LIMIT,
    ErrorCode.MODEL_NOT_READY: ErrorCategory.SERVER,
    ErrorCode.DRAINING: ErrorCategory.SERVER,
    ErrorCode.ENGINE_ERROR: ErrorCategory.SERVER,
    ErrorCode.TEXT_LOST: ErrorCategory.SERVER,
    ErrorCode.INTERNAL: ErrorCategory.SERVER,
    ErrorCode.CONNECTION_LOST: ErrorCategory.CONNECTIVITY,
}
"""Pipecat's category for the error of one turn. All other codes are UNKNOWN: a permanent category
would mute the bot for good because of one turn's voice or text."""


_P = ParamSpec("_P")


class TurnTTSService(TTSService):
    """Speaks turns and keeps their audio contexts in Pipecat filled."""

    def __init__(
        self,
        *,
        url: str | None,
        api_key: str | None,
        extra_headers: Mapping[str, str] | None,
        reconnect_attempts: int,
        response_timeout_s: float,
        **kwargs: Any,
    ) -> None:
        address, headers = checked_connection(url, api_key, extra_headers)
        super().__init__(**kwargs)
        hooks = ConnectionHooks(
            may_connect=lambda: self.is_usable or self._has_substitute,
            on_connected=self._guarded(self._receive_connection),
            on_disconnected=partial(self._call_event_handler, "on_disconnected"),
            on_failure=self._guarded(self._receive_outage),
            on_event=self._receive_other,
        )
        self._address = address
        self._connection = Connection(self.name, address, headers, reconnect_attempts, hooks)
        self._response_timeout_s = response_timeout_s
        self._events: asyncio.Queue[ClientEvent] = asyncio.Queue()
        self._outage: int | str | type[Exception] | None = None  # kind of the error reported last
        self._served_at_s = 0.0  # when a server spoke last although no attempt to connect succeeded
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: dict[str, PipecatTurn] = {}  # by audio context
        self._resuming: dict[str, asyncio.Task[None]] = {}  # by audio context
        self._text_contexts: dict[str, str] = {}
        """The audio context of each text that has begun, by the one that Pipecat gave it first."""
        self._warned: set[str] = set()  # codes of the warnings that were logged
        self._tracing: TracingContext | None = None
        self._noise = ""  # of a failed turn; enters the history unheard

    @abstractmethod
    async def _add_words(self, context_id: str, words: list[SpokenWord]) -> None:
        """Commit words whose audio has arrived; each leaves after its audio."""

    @property
    @abstractmethod
    def _playout_end_s(self) -> float:
        """When the listener has heard all audio that has left the service."""

    @property
    def supports_processing_metrics(self) -> bool:
        """False: text is sent and audio arrives later, so that there is nothing to measure."""
        return False

    @property
    def _has_substitute(self) -> bool:
        """Whether Pipecat can fail over to another service: a switcher's filters are around us."""
        around = self.previous, self.next
        return all(isinstance(processor, FunctionFilter) for processor in around)

    @property
    def _is_served(self) -> bool:
        return any(turn.is_served for turn in self._turns.values())

    @property
    def _may_fail_over(self) -> bool:
        """Whether another service may take over, which would cut off the turns being spoken."""
        return self._has_substitute and not self._is_served

    def _now_s(self) -> float:
        return self.get_clock().get_time() / 1e9

    @property
    def _output_rate_hz(self) -> Any:
        """The pipeline's sample rate if the server has it; otherwise the transport resamples."""
        return self.sample_rate if self.sample_rate in get_args(SampleRate) else SAMPLE_RATE_HZ

    # The connection.

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connect, so that the first turn finds an open socket."""
        await super().setup(setup)
        self._tracing = setup.tracing_context
        steps = self._receive_next_event, self._check_for_silence
        self._tasks = [self._repeat(step) for step in steps]
        await self._connection.connect()

    def _repeat(self, step: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:

        async def repeat() -> None:
            guarded = self._guarded(step)
            while True:
                await guarded()

        return self.create_task(repeat(), step.__name__)

    def _guarded(self, step: Callable[_P, Awaitable[None]]) -> Callable[_P, Awaitable[None]]:
        """A `step` whose unexpected errors are reported, so that its task continues."""

        @wraps(step)
        async def guarded(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                await step(*args, **kwargs)
            except Exception as error:
                sentence = _unexpected(error, step.__name__)
                await self.push_error(sentence, error, category=ErrorCategory.UNKNOWN)
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)

        return guarded

    async def stop(self, frame: EndFrame) -> None:
        """Disconnect once everything is spoken."""
        await super().stop(frame)
        await self._disconnect()

    async def cancel(self, frame: CancelFrame) -> None:
        """Disconnect at once."""
        await super().cancel(frame)
        await self._disconnect()

    async def cleanup(self) -> None:
        """Disconnect, unless that has happened."""
        await super().cleanup()
        await self._disconnect()

    async def _disconnect(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)
        await self._drop_turns()
        if tasks:
            await self.stop_all_metrics()
        await self._connection.aclose()

    async def _receive_connection(self, socket: ClientSocket) -> None:
        await self.set_usable(True)
        await self._call_event_handler("on_connected")

    async def set_usable(self, is_usable: bool) -> None:
        """Give the service another chance, or none; what fails then is reported again."""
        if is_usable:
            self._outage = None
        await super().set_usable(is_usable)

    async def _receive_outage(self, error: Exception, failing_s: float) -> None:
        """Report the first error of an outage, and later ones of another kind.

        Pipecat fails over once the listener has waited too long. It is no outage yet while the
        server that was left speaks on.
        """
        if self._is_served:
            self._served_at_s = self._now_s()
            return
        if (kind := _kind_of(error)) != self._outage:
            self._outage = kind
            is_refusal = isinstance(error, InvalidStatus)
            place = public_address(self._address)
            sentence = (
                f"no connection to {place}: {refusal(error.response.status_code, self._address)}"
                if is_refusal
                else connection_problem(place, error)
            )
            await self._call_event_handler("on_connection_error", sentence)
            await self.push_error_frame(ErrorFrame(sentence, exception=error))
        served_until_s = max(self._served_at_s, self._playout_end_s)
        silent_s = min(failing_s, self._now_s() - served_until_s)
        if self._may_fail_over and self.is_usable and silent_s > self._patience_s:
            await self.push_error(
                "the server cannot be reached",
                category=ErrorCategory.CONNECTIVITY,
                force_treat_as_permanent=True,
            )

    def _receive_other(self, event: ClientEvent) -> None:
        if isinstance(event, ErrorMessage) and event.context_id is None:
            self._events.put_nowait(event)

    async def _receive_next_event(self) -> None:
        await self._receive_event(await self._events.get())

    # Text to the server.

    def _append_text(self, turn: PipecatTurn, text: str) -> None:
        turn.append(text, self._now_s())
        if turn.record is None and turn.context_id not in self._resuming:
            self._resume_turn(turn)

    async def _end_text(self, turn: PipecatTurn) -> None:
        if turn.state is TurnState.FAILED:
            await self.remove_audio_context(turn.context_id)
            return
        turn.end_text(self._now_s())
        if turn.record is None and turn.context_id not in self._resuming:
            await self._complete_turn(turn)

    def _open_context(self, turn: PipecatTurn) -> None:
        """Open a server context that speaks the turn's rest.

        Raises:
            VoiceAgentError: the server accepts no context now, or an option is wrong.
        """
        if (socket := self._connection.socket) is None:
            raise ConnectionLostError("no connection to the server")
        with self._within_turn_span():
            turn.open_context(socket, self._events.put_nowait, self._now_s())

    async def _keep_audio_context(self, turn: PipecatTurn) -> None:
        """Keep Pipecat from ending a silent turn as spoken."""
        if self.audio_context_available(turn.context_id):
            await self.append_to_audio_context(turn.context_id, KeepAliveFrame())

    @contextlib.contextmanager
    def _within_turn_span(self) -> Iterator[None]:
        """Make Pipecat's span of this turn the current one; it passes spans by its own object."""
        tracing = self._tracing
        context = tracing and (tracing.get_turn_context() or tracing.get_conversation_context())
        if context is None:
            yield
            return
        from opentelemetry.context import attach, detach

        token = attach(context)
        try:
            yield
        finally:
            detach(token)

    # Audio and words from the server.

    async def _receive_event(self, event: ClientEvent) -> None:
        if isinstance(event, WarningMessage):
            self._log_warning(event)
        if (turn := self._turn_of(event)) is not None:
            await self._receive_event_of(turn, event)
        elif isinstance(event, ErrorMessage) and event.context_id is None:
            await self.push_error(event.message, category=ErrorCategory.UNKNOWN)

    async def _receive_event_of(self, turn: PipecatTurn, event: ClientEvent) -> None:
        is_first = not turn.samples
        try:
            words = turn.commit(turn.receive(event, self._now_s()))
        except VoiceAgentError as error:
            await self._recover_from(turn, error)
            return
        match event:
            case ClientAudio():
                if is_first:
                    await self.stop_ttfb_metrics()  # Pipecat's own call waits for what plays before
                # Words follow their audio into the queue: there Pipecat can time them, and a word
                # whose audio breaks off before it is audible is not committed.
                await self._queue_audio(turn, event.pcm)
            case WordsMessage():
                placed = turn.placed(timestamps_of(event))
                await self._call_event_handler("on_words", turn.context_id, placed)
            case DoneMessage(reason="limit"):
                await self._speak_on(turn, words)
                return
            case DoneMessage():
                await self._finish_context(turn, words)
                return
            case _:
                pass
        await self._add_words(turn.context_id, words)

    def _log_warning(self, warning: WarningMessage) -> None:
        if warning.code not in self._warned:
            self._warned.add(warning.code)
            logger.warning(f"{self}: {warning.code}: {warning.message}")

    def _turn_of(self, event: ClientEvent) -> PipecatTurn | None:
        context_id = getattr(event, "context_id", None)
        turns = self._turns.values()
        return next((turn for turn in turns if turn.is_spoken_by(context_id)), None)

    async def _finish_context(self, turn: PipecatTurn, words: list[SpokenWord]) -> None:
        turn.broken_off_at_s = None
        if turn.rest.strip():  # text that was on its way when the server was idle, for example
            # Before the next `await`: text that arrives during it must find the turn resuming, or
            # it resumes the turn a second time.
            self._resume_turn(turn)
        elif not turn.samples and turn.text.strip():
            words = await self._speak_nothing(turn)
        await self._add_words(turn.context_id, words)
        if not turn.rest.strip():  # no text has arrived during an `await` either
            await self._complete_turn(turn)

    async def _speak_nothing(self, turn: PipecatTurn) -> list[SpokenWord]:
        """Commit a turn without letters and digits; Pipecat reports no audio at all as an error."""
        await self._queue_audio(turn, silence(UNSPOKEN_MS / 1000, self._output_rate_hz))
        return [SpokenWord(turn.text)]

    async def _queue_audio(self, turn: PipecatTurn, pcm: bytes) -> None:
        frame = TTSAudioRawFrame(pcm, self._output_rate_hz, 1, context_id=turn.context_id)
        await self.append_to_audio_context(turn.context_id, frame)

    async def _mark_audio_end(self, turn: PipecatTurn) -> None:
        if not turn.samples:
            await self.cancel_ttfb_metrics()  # Pipecat takes the mark for audio
        end = AudioEndFrame(b"", self._output_rate_hz, 1, context_id=turn.context_id)
        end.has_unspoken_text = turn.state is not TurnState.COMPLETE
        await self.append_to_audio_context(turn.context_id, end)

    async def _complete_turn(self, turn: PipecatTurn) -> None:
        """End a turn whose text is all spoken; text that arrives later is spoken by a new turn."""
        is_open = turn.state is TurnState.OPEN
        if turn.samples > 0:
            turn.state = TurnState.COMPLETE
        if is_open:
            self._move_text_from(turn.context_id)
        if self.audio_context_available(turn.context_id):
            await self.remove_audio_context(turn.context_id)
        self._turns.pop(turn.context_id, None)

    def create_context_id(self) -> str:
        """The audio context of the text that comes next; a new one outside of a reply."""
        first = super().create_context_id()
        return self._text_contexts.get(first, first)

    @property
    def _text_context_id(self) -> str | None:
        """The audio context of the text of the reply that has begun; None outside of a reply."""
        return self._text_contexts.get(super().create_context_id())

    def _pop_text_context(self) -> str | None:
        """The audio context of the text of a reply that ends; None outside of a reply."""
        return self._text_contexts.pop(super().create_context_id(), None)

    def _move_text_from(self, context_id: str) -> None:
        """Speak the text that follows in a reply in a new audio context."""
        for first, current in self._text_contexts.items():
            if current == context_id:
                self._text_contexts[first] = str(uuid4())

    # Resumption and failure.

    async def _recover_from(self, turn: PipecatTurn, error: VoiceAgentError) -> None:
        if turn.record is None:
            return  # the turn was interrupted
        turn.abandon_context()
        await self._speak_on(turn, turn.commit(turn.break_off_context()), error)

    async def _speak_on(
        self, turn: PipecatTurn, words: list[SpokenWord], error: VoiceAgentError | None = None
    ) -> None:
        """Commit the last words of a context that broke off, and speak the rest, now or later."""
        has_failed = error is not None and not error.is_retryable
        if turn.rest.strip() or has_failed:
            self._resume_turn(turn, error)  # before the next `await`, as in `_finish_context`
        await self._add_words(turn.context_id, words)
        if not turn.rest.strip() and not has_failed and turn.state is TurnState.FINISHING:
            await self._complete_turn(turn)

    def _resume_turn(self, turn: PipecatTurn, error: VoiceAgentError | None = None) -> None:
        """Speak the turn's rest as soon as the server accepts it; `error` broke the turn off."""
        turn.broken_off_at_s = turn.broken_off_at_s or self._now_s()
        self._resuming[turn.context_id] = self.create_task(self._speak_rest(turn, error))

    async def _speak_rest(self, turn: PipecatTurn, error: VoiceAgentError | None) -> None:
        try:
            error = await self._open_again(turn, error)
        except Exception as unexpected:
            error = VoiceAgentError(_unexpected(unexpected, "a turn that was resumed"))
        del self._resuming[turn.context_id]
        if error is not None:
            await self._fail_turn(turn, error)

    async def _open_again(
        self, turn: PipecatTurn, error: VoiceAgentError | None
    ) -> VoiceAgentError | None:
        wait_s = 0.0
        while error is None or self._may_resume(turn, error):
            if error is not None:
                wait_s = turn.next_wait_s((error.retry_after_ms or 0) / 1000)
            await self._keep_audio_context(turn)
            await asyncio.sleep(min(wait_s, self._response_timeout_s))
            error = await self._try_to_open(turn)
            if error is None:
                return None
        return error

    def _may_resume(self, turn: PipecatTurn, error: VoiceAgentError) -> bool:
        """Whether the listener has audio left to hear, or has not waited for too long yet."""
        assert turn.broken_off_at_s is not None
        silent_s = self._now_s() - max(turn.broken_off_at_s, self._playout_end_s)
        is_patient = silent_s < self._patience_s
        return is_patient and turn.can_resume(is_retryable=error.is_retryable)

    @property
    def _patience_s(self) -> float:
        """How long the listener waits in silence until a turn fails."""
        return _FAILOVER_S if self._may_fail_over else self._response_timeout_s

    async def _try_to_open(self, turn: PipecatTurn) -> VoiceAgentError | None:
        """Open a server context for the rest; returns the error that prevented it, if any."""
        self._connection.request()
        try:
            async with asyncio.timeout(_CONNECT_WAIT_S):
                await self._connection.is_ready.wait()
            self._open_context(turn)
            await self._keep_audio_context(turn)
        except TimeoutError:
            return ConnectionLostError("no connection to the server")
        except VoiceAgentError as error:
            return error
        return None

    async def _fail_turn(self, turn: PipecatTurn, error: VoiceAgentError) -> None:
        has_all_text = turn.state is TurnState.FINISHING
        turn.state, self._noise = TurnState.FAILED, turn.noise
        category = _CATEGORIES.get(error.code, ErrorCategory.UNKNOWN)
        await self.push_error(
            f"{error.code}: {error.message}",
            category=category,
            force_treat_as_permanent=self._may_fail_over,
        )
        if not self.audio_context_available(turn.context_id):
            return
        if has_all_text:
            await self.remove_audio_context(turn.context_id)
        else:
            await self._mark_audio_end(turn)

    async def _stop_resuming(self, context_id: str) -> None:
        resuming = self._resuming.pop(context_id, None)
        if resuming is not None:
            await self.cancel_task(resuming)

    async def _stop_turn(self, context_id: str) -> None:
        turn = self._turns.pop(context_id, None)
        if turn is None:
            return
        turn.abandon_context()
        turn.record = None
        await self._stop_resuming(context_id)

    async def _drop_turns(self) -> None:
        for context_id in list(self._resuming):
            await self._stop_resuming(context_id)
        self._turns.clear()

    async def _check_for_silence(self) -> None:
        await asyncio.sleep(_CHECK_INTERVAL_S)
        now_s = self._now_s()
        for turn in list(self._turns.values()):
            # The last word may still grow, and the LLM pause.
            if turn.awaits_audio or turn.context_id in self._resuming:
                await self._keep_audio_context(turn)
            silent_s = turn.silent_s(now_s)
            if silent_s is not None and silent_s > self._response_timeout_s:
                await self._recover_from_silence(turn, silent_s)

    async def _recover_from_silence(self, turn: PipecatTurn, silent_s: float) -> None:
        if time.monotonic() - turn.socket.received_at > self._response_timeout_s:
            turn.socket.give_up("the server is silent")  # a loss without a sign
        error = EngineError(f"no answer from the server for {silent_s:.0f} s")
        await self._recover_from(turn, error)


def _kind_of(error: Exception) -> int | str | type[Exception]:
    """What an error of the connection has in common with others of its outage."""
    if isinstance(error, InvalidStatus):
        return error.response.status_code
    return error.code if isinstance(error, VoiceAgentError) else type(error)


def _unexpected(error: Exception, where: str) -> str:
    """A sentence without the error's own text, which may quote what is spoken."""
    return f"unexpected {type(error).__name__} in {where.strip('_')}"
