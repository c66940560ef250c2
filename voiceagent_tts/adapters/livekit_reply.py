"""`Reply`: one reply of a LiveKit agent, from its text to audio and words, whatever fails between.

A word is handed on just ahead of its audio and not before: LiveKit commits what it was handed, so a
word without sound would be a word that nobody heard. Its time counts from the
first audio and includes the gaps in which playback ran dry, as LiveKit's own clock does. When a
context fails and the reply was already audible, the rest is spoken in a new one, from the word that
broke off; the words that were handed on stay, each once.

Knows the wire (`adapters.livekit_socket`) and LiveKit's `AudioEmitter`; no session, no engine.
"""

import asyncio
import enum
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal
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
from livekit.agents.types import TimedString

from voiceagent_tts.adapters.livekit_socket import Socket
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    PlayoutClock,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.connection import ClientAudio, ClientEvent, ContextRecord
from voiceagent_tts.protocol.messages import AudioFormat, DoneMessage, ErrorMessage, OpenOptions
from voiceagent_tts.text.words import is_spoken

SampleRate = Literal[8000, 16000, 24000, 48000]

_ANSWER_TIMEOUT_S = 2.0
"""A server that has not even answered a ping by then is not there, whatever its socket says."""
_RESUME_WAIT_S = 0.3
"""Before the second and later attempts to go on; the first comes at once."""
_SILENCE_S = 0.04
"""Sound of a text that has none: LiveKit takes a reply without any for a failure."""
_BROKEN_OFF_SAMPLES = ms_to_samples(80)
"""A word that lacks more of its end than this is said again after a failure."""
_UNKNOWN_WORD_SAMPLES = ms_to_samples(250)
"""Length of a word whose end is not known yet."""
_LOOK_AHEAD_SAMPLES = ms_to_samples(100)
"""A word is handed on when the audio is this near: LiveKit is late with a word that comes with it,
but needs a quarter of a second to commit it, so that one whose audio fails to come is not."""
_STEERING_S = 0.2
"""How much before its sound a word is announced, and done when half of it was heard.

LiveKit's synchronizer looks at these times once per token, just when it has let go the token
before, and then sleeps for as long as the syllables that are not due take on average. Told the
true times it is a word behind in three of four cuts. Told these it has exactly the words that had
begun to sound in 60 %, is within one word in 99 %, and ahead in 12 %: simulated with its own code
over English, German, Spanish, Chinese and Japanese, `TranscriptSynchronizer` of 1.8.9.
"""


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
    words_added: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether nothing at all has come from the server since the context was opened."""
        return self.socket.heard_at < self.opened_at


class Reply:
    """One reply; what happens to it comes through one inbox, so that nothing happens at once.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        options: how to speak.
        conn_options: how long to wait for the server, and how often to go on after a failure.
        emitter: takes the audio and the words.
        in_segment: whether the emitter is a `SynthesizeStream`'s, which wants one segment opened.
        connect: gives an open socket, or raises an `APIError`.
        on_sent: called when text has gone to the server.
    """

    def __init__(
        self,
        options: ReplyOptions,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        *,
        in_segment: bool,
        connect: Callable[[], Awaitable[Socket]],
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
        self._in_segment = in_segment
        self._connect = connect
        self._on_sent = on_sent
        self._inbox: asyncio.Queue[str | ReplyInput | ClientEvent] = asyncio.Queue()
        self._text = ""
        self._is_input_ended = False
        self._is_over = False
        self._request_id = uuid4().hex
        self._contexts_opened = 0
        self._failures = 0  # since there was sound
        self._context: _Context | None = None
        self._char_base = 0
        """Where the text begins that no context has spoken, while there is none."""
        self._transcript = _Transcript(options.output_latency_s)

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
            while not self._is_over:
                try:
                    await self._take(await self._next())
                except APIError as error:
                    await self._go_on_after(error)
        finally:
            self._leave()

    @property
    def _is_audible(self) -> bool:
        return self._transcript.samples > 0

    async def _next(self) -> str | ReplyInput | ClientEvent:
        try:
            async with asyncio.timeout(self._patience_s()):
                return await self._inbox.get()
        except TimeoutError:
            raise self._silence() from None

    def _patience_s(self) -> float | None:
        """How long the server may be silent; None where it owes nothing."""
        context = self._context
        if context is None:
            return None
        if context.is_doubtful:
            return min(_ANSWER_TIMEOUT_S, self._conn_options.timeout)
        is_owed = self._is_input_ended or is_spoken(self._text[self._transcript.char_end :])
        return self._conn_options.timeout if is_owed else None

    def _silence(self) -> APIError:
        if self._context is not None and self._context.is_doubtful:
            self._context.socket.give_up("the server does not answer")
        return APITimeoutError("the server is silent")

    async def _take(self, item: str | ReplyInput | ClientEvent) -> None:
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
            case DoneMessage(context_id=context_id) if self._is_mine(context_id):
                await self._finish_context(item)
            case _:
                pass  # words are read with the audio; or its context was left

    def _is_mine(self, context_id: str | None) -> bool:
        return self._context is not None and self._context.record.context_id == context_id

    # Text to the server.

    async def _send(self, item: str | ReplyInput) -> None:
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
        return _Context(socket, record, self._char_base, self._transcript.samples, time.monotonic())

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
        rate_hz = self._options.sample_rate
        if not self._is_audible and self._options.leading_silence_ms:
            self._add_silence(self._options.leading_silence_ms / 1000)
            context.start_sample = self._transcript.samples
        end_offset = sample_offset + len(pcm) // BYTES_PER_SAMPLE
        end_sample = end_offset * SAMPLE_RATE_HZ // rate_hz
        self._transcript.play(context.start_sample + end_sample - self._transcript.samples)
        self._add_words(context, end_sample)
        self._emitter.push(pcm)
        self._failures = 0

    def _add_silence(self, seconds: float) -> None:
        self._transcript.play(round(seconds * SAMPLE_RATE_HZ))
        samples = round(seconds * self._options.sample_rate)
        self._emitter.push(bytes(samples * BYTES_PER_SAMPLE))

    def _add_words(self, context: _Context, until_sample: float) -> None:
        """Hand on the words that begin before `until_sample` on the context's clock, or soon."""
        words = context.record.words
        for index in range(context.words_added, len(words)):
            word = words[index]
            if word.start_sample >= until_sample + _LOOK_AHEAD_SAMPLES:
                break
            next_word = words[index + 1] if index + 1 < len(words) else None
            context.words_added += 1
            self._add_piece(
                context.char_base + word.word.char_end,
                context.start_sample + word.start_sample,
                context.start_sample + _until_sample(word, next_word),
            )

    def _add_piece(self, char_end: int, start_sample: int, until_sample: int) -> None:
        piece = self._transcript.piece(self._text, char_end, start_sample, until_sample)
        if piece:
            self._emitter.push_timed_transcript(piece)

    # The end, and what can come before it.

    async def _finish_context(self, done: DoneMessage) -> None:
        context = self._context
        assert context is not None
        self._context = None
        if done.reason == "limit":
            self._char_base = self._transcript.char_end
        else:
            self._add_words(context, math.inf)
            self._char_base = context.char_base + done.chars
        await self._speak_rest()

    def _end(self) -> None:
        """Hand on what text is left: what stands behind the last word, or has no sound at all."""
        start_sample = self._transcript.samples
        if self._text.strip() and not self._is_audible:
            self._add_silence(_SILENCE_S)
        self._add_piece(len(self._text), start_sample, self._transcript.samples)
        self._is_over = True

    async def _go_on_after(self, error: APIError) -> None:
        """Speak the rest in a new context, if the reply is audible and the failure may pass."""
        if self._context is not None:
            self._char_base = self._broken_off_at(self._context)
        self._leave()
        can_go_on = error.retryable and self._failures < self._conn_options.max_retry
        if not (self._is_audible and can_go_on):
            error.retryable = error.retryable and not self._is_audible
            raise error
        if self._failures:
            await asyncio.sleep(_RESUME_WAIT_S)
        self._failures += 1
        try:
            await self._speak_rest()
        except APIError as another:
            await self._go_on_after(another)

    def _broken_off_at(self, context: _Context) -> int:
        """Where to go on: at the first word that was not spoken to its end."""
        played_samples = self._transcript.samples - context.start_sample
        words = context.record.words[: context.words_added]
        broken_off_at = words[-1].word.char_end if words else 0
        for word in reversed(words):
            if (word.end_sample or 0) - played_samples <= _BROKEN_OFF_SAMPLES:
                break
            broken_off_at = word.word.char_start
        return context.char_base + broken_off_at

    def _leave(self) -> None:
        if self._context is not None:
            self._context.socket.leave(self._context.record.context_id)
            self._context = None


class _Transcript:
    """The words of a reply on the clock by which LiveKit cuts it.

    That clock starts with the first audio and runs on where playback runs dry.
    """

    def __init__(self, latency_s: float) -> None:
        self.char_end = 0
        """End of the text that was handed on."""
        self._latency_s = latency_s
        self._clock = PlayoutClock()
        self._last_s = 0.0

    @property
    def samples(self) -> int:
        """Audio handed on."""
        return self._clock.sent_samples

    def play(self, samples: int) -> None:
        """Audio of `samples` is handed on now."""
        self._clock.send(samples, time.monotonic())

    def piece(
        self, text: str, char_end: int, start_sample: int, until_sample: int
    ) -> TimedString | None:
        """All of `text` from the last piece to `char_end` and the white space behind it.

        White space at the end makes LiveKit look at the time once more before the next word.
        Times never decrease: LiveKit looks them up by bisection.

        Args:
            text: of the reply.
            char_end: end of a word.
            start_sample: where it begins.
            until_sample: where the next one does.
        """
        if char_end <= self.char_end:
            return None  # said again after a failure
        char_end += len(text) - char_end - len(text[char_end:].lstrip())
        start_s = max(self._last_s, self._steered_s(start_sample))
        self._last_s = max(start_s, self._steered_s((start_sample + until_sample) / 2))
        piece = text[self.char_end : char_end]
        self.char_end = char_end
        return TimedString(piece, start_time=start_s, end_time=self._last_s)

    def _steered_s(self, sample: float) -> float:
        heard_s = sample / SAMPLE_RATE_HZ + self._clock.underrun_s + self._latency_s
        return heard_s - _STEERING_S


def _until_sample(word: WordTimestamp, next_word: WordTimestamp | None) -> int:
    if next_word is not None:
        return next_word.start_sample
    return word.end_sample or word.start_sample + _UNKNOWN_WORD_SAMPLES


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
