"""`Reply`: one reply of a LiveKit agent, from its text to audio and words, whatever fails between.

A reply lasts until its last word is heard: `adapters.livekit.playout` hands each on in that moment.
When a context fails and the reply was already audible, the rest is spoken in a new one, from the
word that broke off; the words whose sound had come stay, each once.

Knows the wire (`adapters.livekit.socket`) and LiveKit's `AudioEmitter`; no session, no engine.
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

from voiceagent_tts.adapters.livekit.playout import Cue, Playout
from voiceagent_tts.adapters.livekit.socket import Socket
from voiceagent_tts.adapters.resumption import all_words, broken_off_at
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, WordTimestamp
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ClientAudio, ClientEvent, ContextRecord
from voiceagent_tts.protocol.messages import (
    AudioFormat,
    DoneMessage,
    ErrorMessage,
    OpenOptions,
    SampleRate,
    WordsMessage,
)
from voiceagent_tts.text.borders import has_complete_word

_ANSWER_TIMEOUT_S = 2.0
"""A server that has not even answered a ping by then is not there, whatever its socket says."""
_RESUME_WAIT_S = 0.3
"""Before the second and later attempts to go on; the first comes at once."""
_SILENCE_S = 0.04
"""Sound of a text that has none: LiveKit takes a reply without any for a failure."""


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How a reply is spoken and timed; None is the server's choice."""

    voice: str | None
    language: str | None
    instruct: str | None
    speed: float | None
    seed: int | None
    max_buffer_delay_ms: int | None
    max_lead_s: float | None
    sample_rate: SampleRate
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


class ReplyInput(enum.Enum):
    """What can come between and after the pieces of text."""

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
    opened_at: float
    words_cued: int = 0
    received_samples: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing at all has come from the server since the context was opened."""
        return self.socket.heard_at < self.opened_at

    @property
    def voiced_char_end(self) -> int:
        """End of the reply's text whose sound has come, at least in part."""
        starts = (word.start_sample for word in self.record.words)
        voiced = sum(start < self.received_samples for start in starts)
        words = self.record.words[:voiced]
        return self.char_base + (words[-1].word.char_end if words else 0)


class Reply:
    """One reply; what happens to it comes through one inbox, so that nothing happens at once.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        options: how to speak.
        conn_options: how long to wait for the server, and how often to go on after a failure.
        emitter: takes the audio and the words.
        in_segment: whether the emitter is a `SynthesizeStream`'s, which wants one segment opened.
        output: plays the reply, and says when it begins; None where nobody listens.
        connect: gives an open socket, or raises an `APIError`.
        on_sent: called when text has gone to the server.
        on_words: called with a context's id and its word times as they come.
    """

    def __init__(
        self,
        options: ReplyOptions,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        *,
        in_segment: bool,
        output: io.AudioOutput | None,
        connect: Callable[[], Awaitable[Socket]],
        on_sent: Callable[[], None] = lambda: None,
        on_words: Callable[[str, list[WordTimestamp]], None] = lambda *_: None,
    ) -> None:
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
        self._in_segment = in_segment
        self._connect = connect
        self._on_sent = on_sent
        self._on_words = on_words
        self._inbox: asyncio.Queue[str | ReplyInput | ClientEvent | None] = asyncio.Queue()
        self._text = ""
        self._is_input_ended = False
        self._is_over = False
        """Whether no more audio will come."""
        self._error: APIError | None = None
        self._request_id = uuid4().hex
        self._contexts_opened = 0
        self._failures = 0  # since there was sound
        self._context: _Context | None = None
        self._char_base = 0
        """Where the text begins that no context has spoken, while there is none."""
        self._news_at = time.monotonic()  # the last event that came
        self._playout = Playout(
            emitter,
            output,
            sample_rate_hz=options.sample_rate,
            latency_s=options.output_latency_s,
            on_start=lambda: self._inbox.put_nowait(None),
        )

    def put(self, item: str | ReplyInput) -> None:
        """More text, or what to do with it."""
        self._inbox.put_nowait(item)

    async def speak(self) -> None:
        """Speak until all text is spoken.

        Raises:
            APIError: what went wrong; retryable only while nothing is audible.
        """
        self._emitter.initialize(
            request_id=self._request_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=self._in_segment,
        )
        try:
            while not self._is_over or self._playout.has_words:
                try:
                    await self._take(await self._next())
                except APIError as error:
                    await self._go_on_after(error)
            if self._error is not None:
                raise self._error
            self._playout.finish(self._text)
        finally:
            self._leave()
            self._playout.close()

    @property
    def _is_audible(self) -> bool:
        return self._playout.samples > 0

    async def _next(self) -> str | ReplyInput | ClientEvent | None:
        """The next event; None when it is time to look at the words again."""
        due_in_s = self._playout.due_in_s(is_over=self._is_over)
        patience_s = self._patience_s()
        waits_s = [wait_s for wait_s in (due_in_s, patience_s) if wait_s is not None]
        try:
            async with asyncio.timeout(min(waits_s, default=None)):
                item = await self._inbox.get()
        except TimeoutError:
            # Asked again: what came while this program was busy is read before a wait ends.
            if self._inbox.empty() and self._patience_s() == 0.0:
                raise self._silence() from None
            item = None
        else:
            self._news_at = time.monotonic()
        self._playout.hand_on(self._text, is_over=self._is_over)
        return item

    def _patience_s(self) -> float | None:
        """How long the server may still be silent; None where it owes nothing."""
        context = self._context
        if context is None:
            return None
        timeout_s = self._conn_options.timeout
        if context.is_doubtful:
            timeout_s = min(_ANSWER_TIMEOUT_S, timeout_s)
        # A word that may grow is not owed: the server waits for the rest of it, too.
        elif not (self._is_input_ended or has_complete_word(self._text[context.voiced_char_end :])):
            return None
        return max(0.0, self._news_at + timeout_s - time.monotonic())

    def _silence(self) -> APIError:
        if self._context is not None and self._context.is_doubtful:
            self._context.socket.give_up("the server does not answer")
        return APITimeoutError("the server is silent")

    async def _take(self, item: str | ReplyInput | ClientEvent | None) -> None:
        match item:
            case str():
                self._text += item
                await self._send(item)
            case ReplyInput():
                self._is_input_ended |= item is ReplyInput.END
                await self._send(item)
            case ClientAudio(context_id, _, sample_offset, pcm) if self._is_mine(context_id):
                self._add_audio(sample_offset, pcm)
            case ErrorMessage(context_id=context_id) if self._is_mine(context_id):
                raise api_error(item.to_error(), self._request_id)
            case WordsMessage(context_id=context_id) if self._is_mine(context_id):
                self._on_words(context_id, item.timestamps())
                assert self._context is not None
                self._add_words(self._context, self._context.record.words)
            case DoneMessage(context_id=context_id) if self._is_mine(context_id):
                await self._finish_context(item)
            case _:
                pass  # its context was left, or it says nothing that matters here

    def _is_mine(self, context_id: str | None) -> bool:
        return self._context is not None and self._context.record.context_id == context_id

    # Text to the server.

    async def _send(self, item: str | ReplyInput) -> None:
        if self._error is not None:
            return
        if self._context is None:
            await self._speak_rest()
        else:
            self._tell(self._context, item)

    async def _speak_rest(self) -> None:
        """Open a context for the text that is not spoken; without any, perhaps all is done."""
        rest = self._text[self._char_base :]
        if not rest.strip():
            if self._is_input_ended:
                self._end()
            return
        socket = await self._connect()
        self._context = context = self._open(socket)
        self._tell(context, rest)
        if self._is_input_ended:
            self._tell(context, ReplyInput.END)
        self._on_sent()

    def _open(self, socket: Socket) -> _Context:
        self._contexts_opened += 1
        context_id = self._request_id
        if self._contexts_opened > 1:
            context_id = f"{self._request_id}-{self._contexts_opened}"
        try:
            record = socket.open(context_id, self._inbox.put_nowait, **self._options.of_open())
        except VoiceAgentError as error:
            raise api_error(error, context_id) from error
        if self._contexts_opened == 1 and self._in_segment:
            self._emitter.start_segment(segment_id=context_id)
        self._emitter._note_provider_request_id(context_id)
        return _Context(socket, record, self._char_base, self._playout.samples, time.monotonic())

    def _tell(self, context: _Context, item: str | ReplyInput) -> None:
        """Pass input on, unless the context has ended; then what it left is spoken by the next."""
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

    def _add_audio(self, sample_offset: int, pcm: bytes) -> None:
        context = self._context
        assert context is not None
        if not self._is_audible and self._options.leading_silence_ms:
            self._playout.play_silence(self._options.leading_silence_ms / 1000)
            context.start_sample = self._playout.samples
        end_offset = sample_offset + len(pcm) // BYTES_PER_SAMPLE
        context.received_samples = end_offset * SAMPLE_RATE_HZ // self._options.sample_rate
        self._add_words(context, context.record.words)
        end_sample = context.start_sample + context.received_samples
        self._playout.play(pcm, end_sample - self._playout.samples)
        self._failures = 0

    def _add_words(self, context: _Context, words: list[WordTimestamp]) -> None:
        """Let words wait for their sound, the context's from its first on."""
        while context.words_cued < len(words) and self._is_audible:
            word = words[context.words_cued]
            end_sample = None if word.end_sample is None else context.start_sample + word.end_sample
            self._playout.expect(
                Cue(
                    context.char_base + word.word.char_end,
                    context.start_sample + word.start_sample,
                    end_sample,
                )
            )
            context.words_cued += 1

    # The end, and what can come before it.

    async def _finish_context(self, done: DoneMessage) -> None:
        context = self._context
        assert context is not None
        self._context = None
        if done.reason == "limit":
            self._playout.forget_unheard()
            self._char_base = self._playout.cued_char_end
        else:
            self._add_words(context, context.record.words)
            self._char_base = context.char_base + done.chars
        await self._speak_rest()

    def _end(self) -> None:
        """All is spoken, or has no sound at all."""
        if self._text.strip() and not self._is_audible:
            self._playout.play_silence(_SILENCE_S)
        self._is_over = True

    async def _go_on_after(self, error: APIError) -> None:
        """Speak the rest in a new context, if the reply is audible and the failure may pass."""
        if self._context is not None:
            context, record = self._context, self._context.record
            told, received = record.words, context.received_samples
            self._char_base = context.char_base + broken_off_at(record.text, told, received)
            self._add_words(context, all_words(record.text, told))
            self._playout.forget_unheard()
        self._leave()
        can_go_on = error.retryable and self._failures < self._conn_options.max_retry
        if not (self._is_audible and can_go_on):
            error.retryable = error.retryable and not self._is_audible
            self._error, self._is_over = error, True  # told when what there is was heard
            return
        if self._failures:
            await asyncio.sleep(_RESUME_WAIT_S)
        self._failures += 1
        try:
            await self._speak_rest()
        except APIError as another:
            await self._go_on_after(another)

    def _leave(self) -> None:
        if self._context is not None:
            self._context.socket.leave(self._context.record.context_id)
            self._context = None


def api_error(error: Exception, request_id: str | None = None) -> APIError:
    """`error` as LiveKit knows it, so that it retries or takes the next TTS where that helps."""
    match error:
        case APIError():
            return error
        case aiohttp.ClientResponseError(status=status):
            sentence = f"the server answered with HTTP {status}"
            return APIStatusError(sentence, status_code=status, request_id=request_id)
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
