"""`Reply`: one reply of a LiveKit agent, from its text to audio and words, despite failures.

A reply lasts until its last word is heard: `adapters.livekit.playout` emits each word at that
moment. When a context fails after audio was played, a new context speaks the rest, from the word
that broke off; each word whose audio had arrived is committed once.

This module knows the wire (`adapters.livekit.socket`) and LiveKit's `AudioEmitter`; no session and
no engine.
"""

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiohttp
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    tts,
)
from livekit.agents.voice import io

from voiceagent_tts.adapters.livekit.playout import Playout
from voiceagent_tts.adapters.livekit.socket import Socket
from voiceagent_tts.adapters.turn import RESUME_WAIT_S, Turn
from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientEvent, ContextRecord
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    DoneMessage,
    ErrorMessage,
    LexiconEntries,
    OpenOptions,
    SampleRate,
    WordsMessage,
)
from voiceagent_tts.text.borders import has_complete_word

_ANSWER_TIMEOUT_S = 2.0
"""A server that has not even answered a ping within this is gone, even if the socket is open."""
_SILENCE_S = 0.04
"""Silence played for a text that has no audio: LiveKit treats no audio as a failure."""


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How a reply is spoken and timed; the server chooses where a value is None."""

    voice: str | None
    language: str | None
    instruct: str | None
    speed: float | None
    seed: int | None
    lexicon: LexiconEntries | None
    markup: bool
    max_buffer_delay_ms: int | None
    max_lead_s: float | None
    sample_rate: SampleRate
    leading_silence_ms: int
    output_latency_s: float

    def open_options(self) -> OpenOptions:
        """The options of the reply's server contexts."""
        given: dict[str, Any] = {
            "voice": self.voice,
            "language": self.language,
            "instruct": self.instruct,
            "speed": self.speed,
            "seed": self.seed,
            "lexicon": self.lexicon,
            "markup": self.markup,
            "max_buffer_delay_ms": self.max_buffer_delay_ms,
            "max_lead_s": self.max_lead_s,
            "audio": AudioFormat(sample_rate=self.sample_rate),
        }
        return OpenOptions(**{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ReplyHooks:
    """What the stream does for its reply.

    Attributes:
        connect: returns an open socket, or raises an `APIError`.
        on_sent: called when text has been sent to the server.
        on_words: called with a context's id and its word times as they arrive.
    """

    connect: Callable[[], Awaitable[Socket]]
    on_sent: Callable[[], None] = lambda: None
    on_words: Callable[[str, list[WordTimestamp]], None] = lambda *_: None


class ReplyInput(enum.Enum):
    """What can follow a piece of text."""

    FLUSH = enum.auto()
    """Speak the text that has arrived."""
    END = enum.auto()
    """No more text comes."""


class _State(enum.Enum):
    """The progress of a reply."""

    OPEN = enum.auto()
    """More text may come."""
    FINISHING = enum.auto()
    """No more text comes; the text is being spoken."""
    OVER = enum.auto()
    """No more audio comes; words may still wait to be heard."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The server context that speaks now."""

    socket: Socket
    record: ContextRecord
    opened_at: float

    @property
    def is_unanswered(self) -> bool:
        """Whether the server has sent nothing at all since the context was opened."""
        return self.socket.received_at < self.opened_at


class Reply:
    """Speaks one reply; all its input and events go through one inbox, one item at a time.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        options: how to speak.
        conn_options: how long to wait for the server, and how often to resume after a failure.
        emitter: LiveKit's input for audio and words.
        hooks: what the stream does for the reply.
        in_segment: whether `emitter` belongs to a `SynthesizeStream` and expects one open segment.
        output: plays the reply and reports when it starts; None outside of a session.
    """

    def __init__(
        self,
        options: ReplyOptions,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        hooks: ReplyHooks,
        *,
        in_segment: bool,
        output: io.AudioOutput | None,
    ) -> None:
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
        self._hooks = hooks
        self._in_segment = in_segment
        self._inbox: asyncio.Queue[str | ReplyInput | ClientEvent | None] = asyncio.Queue()
        self._state = _State.OPEN
        self._turn = Turn(uuid4().hex)
        self._context: _Context | None = None
        self._error: APIError | None = None
        self._failures = 0  # attempts to resume since a word was spoken; silence is none
        self._received_at = time.monotonic()  # when the last item of the inbox was received
        self._playout = Playout(
            emitter,
            output,
            sample_rate_hz=options.sample_rate,
            latency_s=options.output_latency_s,
            on_start=lambda: self._inbox.put_nowait(None),
        )

    def send(self, item: str | ReplyInput) -> None:
        """Append text, or mark its flush or end."""
        self._inbox.put_nowait(item)

    async def speak(self) -> None:
        """Speak until all text is spoken.

        Raises:
            APIError: what went wrong; retryable only while nothing is audible.
        """
        self._emitter.initialize(
            request_id=self._turn.turn_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=self._in_segment,
        )
        try:
            while self._state is not _State.OVER or self._playout.has_words:
                try:
                    await self._receive(await self._next())
                except APIError as error:
                    await self._resume_after(error)
            if self._error is not None:
                raise self._error
            self._playout.finish(self._turn.text)
        finally:
            self._abandon_context()
            self._playout.close()

    @property
    def _is_audible(self) -> bool:
        return self._playout.samples > 0

    async def _next(self) -> str | ReplyInput | ClientEvent | None:
        """The next item of the inbox; None when it is time to emit a word.

        Raises:
            APITimeoutError: the server is silent for too long.
        """
        is_over = self._state is _State.OVER
        due_in_s = self._playout.due_in_s(is_over=is_over)
        patience_s = self._patience_s()
        waits_s = [wait_s for wait_s in (due_in_s, patience_s) if wait_s is not None]
        try:
            async with asyncio.timeout(min(waits_s, default=None)):
                item = await self._inbox.get()
        except TimeoutError:
            # Checked again: after a busy moment, items that have arrived come before a timeout.
            if self._inbox.empty() and self._patience_s() == 0.0:
                raise self._give_up_on_silence() from None
            item = None
        else:
            self._received_at = time.monotonic()
        self._playout.emit_due_words(self._turn.text, is_over=is_over)
        return item

    def _patience_s(self) -> float | None:
        """How much longer the server may be silent; None while it owes nothing."""
        context = self._context
        if context is None:
            return None
        timeout_s = self._conn_options.timeout
        if context.is_unanswered:
            timeout_s = min(_ANSWER_TIMEOUT_S, timeout_s)
        elif not self._is_owed_audio:
            return None
        return max(0.0, self._received_at + timeout_s - time.monotonic())

    @property
    def _is_owed_audio(self) -> bool:
        # The server does not owe a word that may still grow: it waits for the rest of the word.
        unvoiced = self._turn.text[self._turn.voiced_char_end :]
        return self._state is _State.FINISHING or has_complete_word(unvoiced)

    def _give_up_on_silence(self) -> APITimeoutError:
        """Give up a socket that has not answered at all; returns the error of the reply."""
        if self._context is not None and self._context.is_unanswered:
            self._context.socket.give_up("the server does not answer")
        return APITimeoutError("the server is silent")

    async def _receive(self, item: str | ReplyInput | ClientEvent | None) -> None:
        match item:
            case str():
                self._turn.text += item
                await self._forward(item)
            case ReplyInput():
                if item is ReplyInput.END and self._state is _State.OPEN:
                    self._state = _State.FINISHING
                await self._forward(item)
            case ClientAudio(context_id=context_id) if self._turn.is_spoken_by(context_id):
                self._play(item)
            case ErrorMessage(context_id=context_id) if self._turn.is_spoken_by(context_id):
                raise api_error(item.to_error(), self._turn.turn_id)
            case WordsMessage(context_id=context_id) if self._turn.is_spoken_by(context_id):
                self._hooks.on_words(context_id, item.timestamps())
                self._expect_new_words()
            case DoneMessage(context_id=context_id) if self._turn.is_spoken_by(context_id):
                await self._finish_context(item)
            case _:
                pass  # of an abandoned context, or not used here

    # Text to the server.

    async def _forward(self, item: str | ReplyInput) -> None:
        if self._error is not None:
            return
        if self._context is None:
            await self._speak_rest()
        else:
            self._send_to(self._context, item)

    async def _speak_rest(self) -> None:
        """Speak the remaining text; if none is left and no more text comes, end the reply."""
        rest = self._turn.rest
        if not rest.strip():
            if self._state is _State.FINISHING:
                self._end()
            return
        socket = await self._hooks.connect()
        self._context = context = self._open(socket)
        self._send_to(context, rest)
        if self._state is _State.FINISHING:
            self._send_to(context, ReplyInput.END)
        self._hooks.on_sent()

    def _open(self, socket: Socket) -> _Context:
        context_id = self._turn.next_server_context_id()
        try:
            record = socket.open(context_id, self._inbox.put_nowait, **self._options.open_options())
        except VoiceAgentError as error:
            raise api_error(error, context_id) from error
        if context_id == self._turn.turn_id and self._in_segment:
            self._emitter.start_segment(segment_id=context_id)
        # A private name that LiveKit's docstring offers to plugins: its traces list all contexts.
        self._emitter._note_provider_request_id(context_id)
        self._turn.start_context(record)
        return _Context(socket, record, time.monotonic())

    def _send_to(self, context: _Context, item: str | ReplyInput) -> None:
        """Send input to a context; after the context's end, the next one speaks what is left."""
        connection, context_id = context.socket.connection, context.record.context_id
        if context.record.done is not None:
            return
        try:
            match item:
                case str():
                    message = connection.text(context_id, item)
                case ReplyInput.FLUSH:
                    message = connection.flush(context_id)
                case ReplyInput.END:
                    message = connection.end(context_id)
        except VoiceAgentError as error:
            raise api_error(error, context_id) from error
        context.socket.send(message)

    # Audio and words to LiveKit.

    def _play(self, audio: ClientAudio) -> None:
        if not self._is_audible and self._options.leading_silence_ms:
            self._playout.play_silence(self._options.leading_silence_ms / 1000)
            self._turn.delay_audio(self._playout.samples)
        samples = self._turn.receive_audio(audio)
        self._expect_new_words()
        self._playout.play(audio.pcm, samples)

    def _expect_new_words(self) -> None:
        if self._is_audible:  # LiveKit accepts no word before the first audio
            self._playout.expect(self._turn.new_words())

    # The end of a context, and of the reply.

    async def _finish_context(self, done: DoneMessage) -> None:
        self._context = None
        if done.reason == "limit":
            self._playout.forget_unheard()
            self._turn.close_context(self._playout.expected_char_end)
        else:
            words = self._turn.finish_context(done.chars)
            if self._is_audible:
                self._playout.expect(words)
        await self._speak_rest()

    def _end(self) -> None:
        """End the reply: all its text is spoken, or has no audio at all."""
        if self._turn.text.strip() and not self._is_audible:
            self._playout.play_silence(_SILENCE_S)
        self._state = _State.OVER

    async def _resume_after(self, error: APIError) -> None:
        """Speak the rest in a new context, if the reply is audible and a retry may help."""
        if self._context is not None:
            unspoken = len(self._turn.rest)
            words = self._turn.break_off_context()
            if len(self._turn.rest) < unspoken:
                self._failures = 0
            if self._is_audible:
                self._playout.expect(words)
            self._playout.forget_unheard()
        self._abandon_context()
        can_resume = error.retryable and self._failures < self._conn_options.max_retry
        if not (self._is_audible and can_resume):
            error.retryable = error.retryable and not self._is_audible
            # Raised only once the audio that has arrived was heard.
            self._error, self._state = error, _State.OVER
            return
        if self._failures:
            await asyncio.sleep(RESUME_WAIT_S)
        self._failures += 1
        try:
            await self._speak_rest()
        except APIError as another:
            await self._resume_after(another)

    def _abandon_context(self) -> None:
        if self._context is not None:
            self._context.socket.abandon(self._context.record.context_id)
            self._context = None


def api_error(error: Exception, request_id: str | None = None) -> APIError:
    """`error` as LiveKit's type: LiveKit retries, or falls back to another TTS where that helps."""
    match error:
        case APIError():
            return error
        case aiohttp.ClientResponseError(status=status):
            message = f"the server answered with HTTP {status}"
            return APIStatusError(message, status_code=status, request_id=request_id)
        case TimeoutError():
            return APITimeoutError()
        case ConnectionLostError():
            return APIConnectionError(error.message)
        case VoiceAgentError():
            return APIStatusError(
                f"{error.code}: {error.message}",
                status_code=error.status,
                request_id=request_id,
                body={"code": error.code, "retry_after_ms": error.retry_after_ms},
                retryable=error.is_retryable,
            )
        case _:
            return APIConnectionError(f"no connection: {type(error).__name__}")
