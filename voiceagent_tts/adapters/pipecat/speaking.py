"""`TurnTTSService`: speaks turns in Pipecat's audio contexts, each by a `PipecatReply`.

A turn that breaks off resumes in the same audio context. The service retries while the listener has
audio left to hear, and then for `response_timeout_s` of silence, or less if Pipecat has another
service to fail over to. Then the turn fails. It fails at once if the request itself is wrong.
"""

import asyncio
import contextlib
import copy
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, ParamSpec, get_args
from uuid import uuid4

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.processors.filters.function_filter import FunctionFilter
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.services.tts_service import TTSService
from pipecat.utils.errors import (
    ErrorCategory,
    classify_http_exception,
    extract_http_status_code,
)
from pipecat.utils.tracing.tracing_context import TracingContext
from websockets.exceptions import InvalidStatus

from voiceagent_tts.adapters.options import checked_connection, is_refused_key
from voiceagent_tts.adapters.pipecat.connection import Connection, ConnectionHooks
from voiceagent_tts.adapters.pipecat.output import AudioEndFrame, KeepAliveFrame
from voiceagent_tts.adapters.pipecat.turn import PipecatTurn, SpokenWord
from voiceagent_tts.adapters.reply import Choices, Item, Mark, Reply
from voiceagent_tts.adapters.turn import UNSPOKEN_MS, TurnState, TurnWord, silence
from voiceagent_tts.client import ClientSocket, connection_problem, public_address, refusal
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientEvent, ContextRecord, OpenOptions
from voiceagent_tts.protocol.messages import DoneMessage, ErrorMessage, SampleRate, WarningMessage

_FAILOVER_S = 1.0
"""How long the listener waits in silence until another service takes over."""
_KEEP_ALIVE_INTERVAL_S = 0.5
"""Time between two signs to Pipecat that a silent turn is not over."""
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


class PipecatReply(Reply[PipecatTurn]):
    """Speaks a turn in one of Pipecat's audio contexts.

    Attributes:
        text: the text that has arrived so far.
        has_all_text: whether no more text comes.
    """

    def __init__(self, service: "TurnTTSService", context_id: str) -> None:
        choices = service._choices
        turn = PipecatTurn(context_id, service._open_options(choices.current.settings))
        super().__init__(turn, choices, choices.current, timeout_s=service._response_timeout_s)
        self.text = ""
        self.has_all_text = False
        self._service = service
        self._is_audible = False
        self._speaking: asyncio.Task[None] | None = None

    def send(self, item: Item) -> None:
        """Put an item into the inbox; the first one starts the task."""
        super().send(item)
        if self._speaking is None:
            self._speaking = self._service.create_task(self.speak(), "speak")

    def append(self, text: str) -> None:
        """Append text."""
        self.text += text
        self.send(text)

    def end_text(self) -> None:
        """Mark the text as complete."""
        self.has_all_text = True
        self.send(Mark.END)

    async def speak(self) -> None:
        """Speak the turn; it ends for Pipecat whatever fails, and what follows it is heard."""
        try:
            await super().speak()
        except Exception as error:
            self.turn.state = TurnState.FAILED
            sentence = _unexpected(error, "a turn")
            await self._service.push_error(sentence, category=ErrorCategory.UNKNOWN)
            await self._close()

    def stop(self) -> None:
        """Cancel the server context at once, and play nothing more."""
        self.turn.abandon_context()
        if self._speaking is not None:
            self._speaking.cancel()

    # A server context.

    async def _connect(self) -> ClientSocket:
        self._note_broken_off()
        return await self._service._connection.acquire()

    def open(self, socket: ClientSocket) -> ContextRecord:
        """Open a server context within Pipecat's span of this turn."""
        with self._service._within_turn_span():
            return super().open(socket)

    def _open_options(self, settings: Any) -> OpenOptions:
        return self._service._open_options(settings)

    async def _report_refusal(self, error: InvalidRequestError) -> None:
        self._service._restore_settings()
        await self._service.push_error(
            f"{error.code}: {error.message}; the settings before stay",
            category=ErrorCategory.UNKNOWN,
        )

    # Audio and words to Pipecat.

    async def _play(self, pcm: bytes) -> None:
        if not self._is_audible:
            self._is_audible = True
            # Pipecat's own call waits for what plays before.
            await self._service.stop_ttfb_metrics()
        await self._queue(TTSAudioRawFrame(pcm, self._service._output_rate_hz, 1))

    async def _queue(self, frame: TTSAudioRawFrame | TTSStoppedFrame) -> None:
        frame.context_id = self.turn.context_id
        await self._service.append_to_audio_context(frame.context_id, frame)

    async def _expect_words(self, words: list[WordTimestamp]) -> None:
        await self._service._call_event_handler("on_words", self.turn.context_id, words)

    async def _add_words(self, words: list[TurnWord]) -> None:
        # They follow their audio into the queue: there Pipecat can time them, and a word whose
        # audio breaks off before it is audible is not committed.
        await self._service._add_words(self.turn.context_id, self.turn.commit(words))

    # The end of a context, and of the turn.

    async def _receive_event(self, event: ClientEvent) -> None:
        await super()._receive_event(event)
        is_idle = isinstance(event, DoneMessage) and event.reason == "idle"
        if is_idle and self._inbox.empty() and not (self.has_all_text or self.turn.rest.strip()):
            self._service._move_text_from(self.turn.context_id)  # others may be played before it
            self.end_text()

    def _note_broken_off(self) -> float:
        """Note since when text waits for a server context; while the LLM pauses, none does."""
        now_s = self._service._now_s()
        if self.turn.rest.strip():
            self.turn.broken_off_at_s = self.turn.broken_off_at_s or now_s
        return self.turn.broken_off_at_s or now_s

    def _wait_to_resume_s(self, error: Exception, *, has_audio: bool) -> float | None:
        """Wait while the listener has audio left to hear, or has not waited for too long yet."""
        service = self._service
        silent_since_s = max(self._note_broken_off(), service._playout_end_s)
        is_patient = service._now_s() - silent_since_s < service._patience_s
        if not (is_patient and isinstance(error, VoiceAgentError)):
            return None
        if not self.turn.can_resume(is_retryable=error.is_retryable):
            return None
        wait_s = self.turn.next_wait_s((error.retry_after_ms or 0) / 1000)
        return min(wait_s, service._response_timeout_s)

    async def _end(self) -> None:
        if not self.turn.samples and self.turn.text.strip():
            pcm = silence(UNSPOKEN_MS / 1000, self._service._output_rate_hz)
            await self._queue(TTSAudioRawFrame(pcm, self._service._output_rate_hz, 1))
        await self._close()

    async def _fail(self, error: Exception) -> None:
        if not isinstance(error, VoiceAgentError):
            error = VoiceAgentError(_unexpected(error, "a turn"))
        service = self._service
        service._noise = self.turn.noise
        await service.push_error(
            f"{error.code}: {error.message}",
            category=_CATEGORIES.get(error.code, ErrorCategory.UNKNOWN),
            force_treat_as_permanent=service._may_fail_over,
        )
        if not self.has_all_text:
            await self._mark_audio_end()
        while not self.has_all_text:
            await self._inbox.get()  # text that is not spoken
        await self._close()

    async def _close(self) -> None:
        self._service._replies.pop(self.turn.context_id, None)
        await self._mark_audio_end()
        if self._is_open:
            await self._queue(TTSStoppedFrame())
            await self._service.remove_audio_context(self.turn.context_id)

    async def _mark_audio_end(self) -> None:
        if not self._is_open:
            return
        if not self.turn.samples:
            await self._service.cancel_ttfb_metrics()  # Pipecat takes the mark for audio
        end = AudioEndFrame(b"", self._service._output_rate_hz, 1)
        end.has_unspoken_text = self.turn.state is TurnState.FAILED or not self.turn.samples
        await self._queue(end)

    @property
    def _is_open(self) -> bool:
        return self._service.audio_context_available(self.turn.context_id)


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
        self._choices = Choices(copy.deepcopy(self.settings))
        self._outage: int | str | type[Exception] | None = None  # kind of the error reported last
        self._served_at_s = 0.0  # when a server spoke last although no attempt to connect succeeded
        self._keeping_alive: asyncio.Task[None] | None = None
        self._replies: dict[str, PipecatReply] = {}  # by audio context
        self._text_contexts: dict[str, str] = {}
        """The audio context of each text that has begun, by the one that Pipecat gave it first."""
        self._warned: set[str] = set()  # codes of the warnings that were logged
        self._tracing: TracingContext | None = None
        self._noise = ""  # of a failed turn; enters the history unheard

    @abstractmethod
    async def _add_words(self, context_id: str, words: list[SpokenWord]) -> None:
        """Commit words whose audio has arrived; each leaves after its audio."""

    @abstractmethod
    def _open_options(self, settings: Any) -> OpenOptions:
        """The options of the server contexts that speak with `settings`."""

    @abstractmethod
    def _restore_settings(self) -> None:
        """Return to the settings of the current choice: a server has refused what came after."""

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
        return any(reply.turn.is_served for reply in self._replies.values())

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
        self._keeping_alive = self._repeat(self._keep_audio_contexts)
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
        for context_id in list(self._replies):
            self._stop_reply(context_id)
        if (task := self._keeping_alive) is not None:
            self._keeping_alive = None
            await self.cancel_task(task)
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
            await self.push_error(sentence, error, category=_category_of(error))
        served_until_s = max(self._served_at_s, self._playout_end_s)
        silent_s = min(failing_s, self._now_s() - served_until_s)
        if self._may_fail_over and self.is_usable and silent_s > self._patience_s:
            await self.push_error(
                "the server cannot be reached",
                category=ErrorCategory.CONNECTIVITY,
                force_treat_as_permanent=True,
            )

    def _receive_other(self, event: ClientEvent) -> None:
        match event:
            case ErrorMessage(context_id=None, message=message):
                self.create_task(self.push_error(message, category=ErrorCategory.UNKNOWN))
            case WarningMessage(code=code, message=message) if code not in self._warned:
                self._warned.add(code)
                logger.warning(f"{self}: {code}: {message}")
            case _:
                pass

    async def _keep_audio_contexts(self) -> None:
        await asyncio.sleep(_KEEP_ALIVE_INTERVAL_S)
        for context_id, reply in list(self._replies.items()):
            # While its LLM pauses, a turn may end for Pipecat.
            if reply.turn.awaits_audio and self.audio_context_available(context_id):
                await self.append_to_audio_context(context_id, KeepAliveFrame())

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

    @property
    def _patience_s(self) -> float:
        """How long the listener waits in silence until a turn fails."""
        return _FAILOVER_S if self._may_fail_over else self._response_timeout_s

    def _stop_reply(self, context_id: str) -> None:
        if (reply := self._replies.pop(context_id, None)) is not None:
            reply.stop()


def _kind_of(error: Exception) -> int | str | type[Exception]:
    """What an error of the connection has in common with others of its outage."""
    if isinstance(error, InvalidStatus):
        return error.response.status_code
    return error.code if isinstance(error, VoiceAgentError) else type(error)


def _category_of(error: Exception) -> ErrorCategory:
    """Pipecat's category for an error of the connection; a permanent one only for a refused key."""
    category = classify_http_exception(error)
    may_recover = not is_refused_key(extract_http_status_code(error) or 0)
    return ErrorCategory.CONNECTIVITY if category.is_permanent and may_recover else category


def _unexpected(error: Exception, where: str) -> str:
    """A sentence without the error's own text, which may quote what is spoken."""
    return f"unexpected {type(error).__name__} in {where.strip('_')}"
