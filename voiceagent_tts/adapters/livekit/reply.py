"""`LiveKitReply`: one reply of a LiveKit agent, from its text to audio and words.

A reply ends when the server has sent all of it, long before it has been played;
`adapters.livekit.playout` then says which of its words were heard. When a context fails after audio
was played, a new context speaks the rest, from the word that broke off. It retries while the
listener still has audio to hear, and then as often as LiveKit's retry policy allows.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Unpack
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
from livekit.agents.types import NOT_GIVEN, NotGivenOr, TimedString

from voiceagent_tts.adapters.livekit.playout import Listener, Playout
from voiceagent_tts.adapters.options import (
    check_not_negative,
    check_sample_rate,
    check_speech,
    is_refused_key,
    open_options,
    unknown_options,
)
from voiceagent_tts.adapters.reply import Choice, Choices, Item, Reply, SilentServerError
from voiceagent_tts.adapters.turn import UNSPOKEN_MS, Turn, TurnWord, silence
from voiceagent_tts.client import ClientSocket, connection_problem, refusal, speaks_no_tls
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ConnectionLostError, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import ContextRecord, OpenOptions, VoiceOptions
from voiceagent_tts.protocol.messages import SampleRate

_ANSWER_TIMEOUT_S = 2.0
"""A server that has not answered a ping within this time is treated as lost, even if the socket is
open."""


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How a reply is spoken and timed.

    Args:
        spoken: options of the speech; the server chooses those that are missing or None.
        output_latency_s: delay between the output and the listener.
    """

    spoken: VoiceOptions
    sample_rate: SampleRate
    leading_silence_ms: int
    output_latency_s: float

    def check(self) -> None:
        """Check every option.

        Raises:
            InvalidRequestError: an option is wrong.
            TypeError: there is no such option.
        """
        if unknown := unknown_options(self.spoken):
            raise TypeError(f"there is no option {', '.join(unknown)}")
        check_sample_rate(self.sample_rate)
        check_speech(**self.open_options())
        check_not_negative(
            leading_silence_ms=self.leading_silence_ms, output_latency_s=self.output_latency_s
        )

    def open_options(self) -> OpenOptions:
        """The options of the reply's server contexts."""
        return open_options(self.spoken, self.sample_rate)

    def changed(self, **options: Unpack[VoiceOptions]) -> "ReplyOptions":
        """A copy with other options of the speech."""
        return replace(self, spoken={**self.spoken, **options})


class LiveKitReply(Reply[Turn]):
    """Speaks one reply for LiveKit.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        choices: of the plugin.
        choice: with which the reply begins.
        conn_options: how long to wait for the server, and how often to try without an audible one.
        emitter: LiveKit's input for audio and words.
        acquire: returns an open socket, or raises an `APIError`.
        own_options: options of this reply, in place of those chosen.
        in_segment: whether `emitter` belongs to a `SynthesizeStream` and expects one open segment.
        listener: hears the reply; None outside of a session.
        on_sent: called when a server context has been opened.
        on_refusal: called when a server refuses `choice`, and the one before stays.
        on_words: called with the reply's id and word times, at their positions in the reply, as
            they arrive.
    """

    def __init__(
        self,
        choices: Choices[ReplyOptions],
        choice: Choice[ReplyOptions],
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        acquire: Callable[[], Awaitable[ClientSocket]],
        *,
        own_options: VoiceOptions | None = None,
        in_segment: bool = False,
        listener: Listener | None = None,
        on_sent: Callable[[], None] = lambda: None,
        on_refusal: Callable[[APIError], None] = lambda _: None,
        on_words: Callable[[str, list[WordTimestamp]], None] = lambda *_: None,
    ) -> None:
        self._own_options = own_options or VoiceOptions()
        options = choice.settings
        turn = Turn(
            uuid4().hex,
            self._open_options(options),
            start_sample=ms_to_samples(options.leading_silence_ms),
            max_failures=conn_options.max_retry,
            retry_wait_s=conn_options.retry_interval,
        )
        answer_timeout_s = min(_ANSWER_TIMEOUT_S, conn_options.timeout)
        super().__init__(
            turn,
            choices,
            choice,
            timeout_s=conn_options.timeout,
            answer_timeout_s=answer_timeout_s,
        )
        self._options = options
        self._emitter = emitter
        self._acquire, self._on_sent, self._on_words = acquire, on_sent, on_words
        self._on_refusal = on_refusal
        self._in_segment = in_segment
        self._listener = listener
        self._playout = Playout(options.output_latency_s)
        self._shown_char_end = 0  # of the text that LiveKit has
        self._shown_s = 0.0  # the latest time that LiveKit has

    @property
    def is_audible(self) -> bool:
        """Whether any audio has been passed to LiveKit."""
        return self._playout.samples > 0

    async def speak(self) -> None:
        """Speak until the server has sent the whole reply.

        Raises:
            APIError: what went wrong; retryable only while nothing is audible.
        """
        self._emitter.initialize(
            request_id=self.turn.context_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=self._in_segment,
        )
        await super().speak()

    async def end_audio(self) -> None:
        """Pass on all audio that has arrived, and count it; otherwise LiveKit drops the end."""
        self._emitter.end_input()
        await self._emitter.join()

    # A server context.

    async def _connect(self) -> ClientSocket:
        return await self._acquire()

    def open(self, socket: ClientSocket) -> ContextRecord:
        """Open a server context, and announce it."""
        record = super().open(socket)
        if record.context_id == self.turn.context_id and self._in_segment:
            self._emitter.start_segment(segment_id=record.context_id)
        # A private name that LiveKit's docstring offers to plugins: its traces list all contexts.
        self._emitter._note_provider_request_id(record.context_id)
        self._on_sent()
        return record

    def _open_options(self, settings: ReplyOptions) -> OpenOptions:
        return settings.changed(**self._own_options).open_options()

    async def _report_refusal(self, error: InvalidRequestError) -> None:
        self._on_refusal(api_error(error, self.turn.context_id))

    async def _receive(self, item: Item) -> None:
        await super()._receive(item)
        self._playout.text = self.turn.text

    # Audio and words to LiveKit.

    async def _play(self, pcm: bytes) -> None:
        was_audible = self.is_audible
        if not was_audible and self._options.leading_silence_ms:
            self._play_silence(self._options.leading_silence_ms)
        self._push(pcm, self.turn.samples - self._playout.samples)
        if not was_audible and self.turn.record is not None:
            self._show_ahead(self.turn.placed(self.turn.record.words))

    def _play_silence(self, ms: float) -> None:
        self._push(silence(ms / 1000, self._options.sample_rate), ms_to_samples(ms))

    def _push(self, pcm: bytes, samples: int) -> None:
        if not self.is_audible and self._listener is not None:
            self._listener.hear(self._playout)
        self._playout.play(samples, time.monotonic())
        self._emitter.push(pcm)

    async def _expect_words(self, words: list[WordTimestamp]) -> None:
        self._on_words(self.turn.context_id, words)
        if self.is_audible:
            self._show_ahead(words)

    async def _add_words(self, words: list[TurnWord]) -> None:
        self._playout.words += words
        for word in words:
            self._show_word(word.char_end, word.timestamp.later(word.context_start))
        if self.turn.record is None:
            self._forget_unheard()

    def _show_ahead(self, words: list[WordTimestamp]) -> None:
        """Show words ahead of their audio, so that no transcript is late."""
        for each in words:
            self._show_word(each.word.char_end, each)

    def _show_word(self, char_end: int, times: WordTimestamp) -> None:
        # White space goes with the word before it, so that no transcript begins with any.
        char_end = len(self.turn.text) - len(self.turn.text[char_end:].lstrip())
        end = times.start_sample if times.end_sample is None else times.end_sample
        self._show(char_end, times.start_sample, end, times.confidence)

    def _show(
        self, char_end: int, start: int, end: int, confidence: NotGivenOr[float] = NOT_GIVEN
    ) -> None:
        """Push the text up to `char_end`; times never decrease, because LiveKit bisects them."""
        piece = self.turn.text[self._shown_char_end : char_end]
        if not piece:
            return
        self._shown_char_end = char_end
        start_s, self._shown_s = (
            max(self._shown_s, position / SAMPLE_RATE_HZ + self._playout.underrun_s)
            for position in (start, end)
        )
        timed = TimedString(
            piece, start_time=start_s, end_time=self._shown_s, confidence=confidence
        )
        self._emitter.push_timed_transcript(timed)

    # The end of a context, and of the reply.

    def _forget_unheard(self) -> None:
        """Drop words that are heard when they are spoken again, and are returned again then."""
        words = self._playout.words
        if words and words[-1].record.spoken_chars is not None:  # then noise came in their place
            self._playout.forget_after(self.turn.spoken_char_end)
        self._playout.forget_unheard()
        self.turn.returned_char_end = self._playout.char_end

    def _wait_to_resume_s(self, error: Exception, *, has_audio: bool) -> float | None:
        """Wait as LiveKit's policy says; while the listener has audio left, no attempt counts."""
        if not has_audio and self._playout.left_s(time.monotonic()) == 0.0:
            self.turn.failures += 1
        error = api_error(error)
        if not (self.is_audible and self.turn.can_resume(is_retryable=error.retryable)):
            return None
        return self.turn.next_wait_s(_retry_after_s(error))

    async def _end(self) -> None:
        if self.turn.text.strip() and not self.is_audible:
            self._play_silence(UNSPOKEN_MS)
        self._playout.is_complete = True
        self._show(len(self.turn.text), self._playout.samples, self._playout.samples)

    async def _fail(self, error: Exception) -> None:
        reported = api_error(error, self.turn.context_id)
        reported.retryable = reported.retryable and not self.is_audible
        await self.end_audio()
        raise reported from None  # the text of an unexpected one may quote what is spoken


def _retry_after_s(error: APIError) -> float:
    body = error.body if isinstance(error.body, dict) else {}
    return (body.get("retry_after_ms") or 0) / 1000


def api_error(error: Exception, request_id: str | None = None) -> APIError:
    """`error` as LiveKit's type: LiveKit retries, or falls back to another TTS where that helps."""
    match error:
        case APIError():
            return error
        case aiohttp.ClientResponseError(status=status, request_info=asked):
            sentence = refusal(status, str(asked.real_url))
            if isinstance(error, aiohttp.WSServerHandshakeError) and not is_refused_key(status):
                return APIConnectionError(sentence)  # LiveKit never retries a 4xx
            return APIStatusError(sentence, status_code=status, request_id=request_id)
        case SilentServerError():
            return APITimeoutError("the server is silent")
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
        case aiohttp.ClientConnectorError(host=host, port=port, os_error=cause):
            problem = connection_problem(f"{host}:{port}", cause)
            return APIConnectionError(problem, retryable=not speaks_no_tls(cause))
        case aiohttp.ClientError() | OSError():
            return APIConnectionError(f"no connection: {type(error).__name__}")
        case _:  # its text may quote what is spoken
            return APIError(f"unexpected {type(error).__name__}", retryable=False)
