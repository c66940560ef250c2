"""`Reply`: one reply of a LiveKit agent, from its text to audio and words, whatever fails between.

A word is handed on just ahead of the audio that it begins in, never before: LiveKit commits what it
was handed, so a word without sound would be a word that nobody heard. Its time counts from the
first audio and includes the gaps in which playback ran dry, as LiveKit's own clock does. When a
context fails and the reply was already audible, the rest is spoken in a new one, from the word that
broke off; the words that were handed on stay, each once.

Knows the wire (`adapters.livekit_socket`) and LiveKit's `AudioEmitter`; no session, no engine.
"""

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable, Sequence
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
from voiceagent_tts.text.words import is_spoken, split_words

SampleRate = Literal[8000, 16000, 24000, 48000]

_ANSWER_TIMEOUT_S = 2.0
"""A server that has not said `context.opened` by then is not there, whatever its socket says."""
_RESUME_WAIT_S = 0.3
"""Before the second and later attempts to go on; the first comes at once."""
_SILENCE_S = 0.04
"""Sound of a text that has none: LiveKit takes a reply without any for a failure."""
_BROKEN_OFF_SAMPLES = ms_to_samples(80)
"""A word that lacks more of its end than this is said again after a failure."""
_UNKNOWN_WORD_SAMPLES = ms_to_samples(250)
"""Length of a word whose end is not known yet; LiveKit keeps a word without an end to itself."""
_ESTIMATED_CHARS_PER_S = 15.0


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
    words_added: int = 0

    @property
    def words(self) -> Sequence[WordTimestamp]:
        """Its words; a server that sends audio without any leaves them to an estimate."""
        return self.record.words or _estimated_words(self.record.text)

    def received_samples(self, event: ClientAudio) -> int:
        """Where `event` ends on the context's clock."""
        audio = self.record.audio
        samples = event.sample_offset + len(event.pcm) // audio.bytes_per_sample
        return samples * SAMPLE_RATE_HZ // audio.sample_rate


class Reply:
    """One reply; what happens to it comes through one inbox, so that nothing happens at once.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        options: how to speak.
        conn_options: how long to wait for the server, and how often to go on after a failure.
        emitter: takes the audio and the words.
        connect: gives an open socket, or raises an `APIError`.
        on_sent: called when text goes to the server.
    """

    def __init__(
        self,
        options: ReplyOptions,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        connect: Callable[[], Awaitable[Socket]],
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
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
        """End of the text that needs no context any more."""
        self._transcript = _Transcript(options.output_latency_s)

    def put(self, item: str | ReplyInput) -> None:
        """More text, or what to do with it."""
        self._inbox.put_nowait(item)

    async def speak(self, *, in_segment: bool) -> None:
        """Speak until all text is spoken.

        Args:
            in_segment: whether the emitter is one of a `SynthesizeStream`, and wants its one
                segment to be opened.

        Raises:
            APIError: what went wrong; retryable only while nothing is audible.
        """
        self._emitter.initialize(
            request_id=self._request_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=in_segment,
        )
        try:
            while not self._is_over:
                await self._take(await self._next(), in_segment)
        except APIError as error:
            error.retryable = error.retryable and not self._is_audible
            raise
        finally:
            self._leave()

    @property
    def _is_audible(self) -> bool:
        return self._transcript.samples > 0

    async def _next(self) -> str | ReplyInput | ClientEvent | TimeoutError:
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
        is_owed = self._is_input_ended or is_spoken(self._text[self._transcript.char_end :])
        return self._conn_options.timeout if is_owed else None

    async def _take(self, item: str | ReplyInput | ClientEvent | TimeoutError) -> None:
        match item:
            case str():
                await self._add_text(item)
            case ReplyInput():
                self._obey(item)
            case TimeoutError():
                await self._go_on_after(self._silence())
            case _ if self._is_of_another_context(item):
                pass  # still on its way when that context was left
            case ClientAudio():
                self._add_audio(item)
            case ErrorMessage():
                await self._go_on_after(api_error(item.to_error(), self._request_id))
            case DoneMessage():
                await self._finish_context(item)
            case _:
                pass

    def _is_of_another_context(self, event: ClientEvent) -> bool:
        context_id = getattr(event, "context_id", None)
        return self._context is None or self._context.record.context_id != context_id
