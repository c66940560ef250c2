"""`Reply`: one reply of a LiveKit agent, from its text to audio and words, despite failures.

A reply ends when the server has sent all of it, long before it has been played;
`adapters.livekit.playout` then says which of its words were heard. When a context fails after audio
was played, a new context speaks the rest, from the word that broke off. It retries while the
listener still has audio to hear, and then as often as LiveKit's retry policy allows.
"""

import asyncio
import enum
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
    open_options,
    unknown_options,
)
from voiceagent_tts.adapters.turn import (
    UNSPOKEN_MS,
    Turn,
    TurnState,
    TurnWord,
    WholeCharacters,
    silence,
)
from voiceagent_tts.client import ClientSocket, connection_problem, refusal, speaks_no_tls
from voiceagent_tts.core import SAMPLE_RATE_HZ, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientEvent,
    OpenOptions,
    VoiceOptions,
    timestamps_of,
)
from voiceagent_tts.protocol.messages import (
    DoneMessage,
    SampleRate,
    WordsMessage,
)

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


class ReplyInput(enum.Enum):
    """Marks that can follow text in the inbox."""

    FLUSH = enum.auto()
    """Speak the text that has arrived."""
    END = enum.auto()
    """No more text comes."""


_Item = str | ReplyInput | ClientEvent | APIError
"""Items of a reply's inbox; an `APIError` ends the reply."""


class Reply:
    """Speaks one reply. Its input and events pass through one inbox, one item at a time.

    Positions are samples at 24 kHz and characters of the reply's text.

    Args:
        conn_options: how long to wait for the server, and how often to try without an audible one.
        emitter: LiveKit's input for audio and words.
        connect: returns an open socket, or raises an `APIError`.
        in_segment: whether `emitter` belongs to a `SynthesizeStream` and expects one open segment.
        listener: hears the reply; None outside of a session.
        on_sent: called when a server context has been opened.
        on_words: called with the reply's id and word times, at their positions in the reply, as
            they arrive.
    """

    def __init__(
        self,
        options: ReplyOptions,
        conn_options: APIConnectOptions,
        emitter: tts.AudioEmitter,
        connect: Callable[[], Awaitable[ClientSocket]],
        *,
        in_segment: bool = False,
        listener: Listener | None = None,
        on_sent: Callable[[], None] = lambda: None,
        on_words: Callable[[str, list[WordTimestamp]], None] = lambda *_: None,
    ) -> None:
        self._options = options
        self._conn_options = conn_options
        self._emitter = emitter
        self._connect, self._on_sent, self._on_words = connect, on_sent, on_words
        self._in_segment = in_segment
        self._listener = listener
        self._inbox: asyncio.Queue[_Item] = asyncio.Queue()
        self._turn = Turn(
            uuid4().hex,
            options.open_options(),
            start_sample=ms_to_samples(options.leading_silence_ms),
            max_failures=conn_options.max_retry,
            retry_wait_s=conn_options.retry_interval,
        )
        self._characters = WholeCharacters()
        self._playout = Playout(options.output_latency_s)
        self._opened_at = 0.0  # when the server context that speaks was opened
        self._resume_at: float | None = None  # when the next attempt to resume begins
        self._error: APIError | None = None
        self._shown_char_end = 0  # of the text that LiveKit has
        self._shown_s = 0.0  # the latest time that LiveKit has

    @property
    def is_audible(self) -> bool:
        """Whether any audio has been passed to LiveKit."""
        return self._playout.samples > 0

    def send(self, item: str | ReplyInput | APIError) -> None:
        """Append text, or mark its flush or end; an error ends the reply."""
        self._inbox.put_nowait(item)

    async def speak(self) -> None:
        """Speak until the server has sent the whole reply.

        Raises:
            APIError: what went wrong; retryable only while nothing is audible.
        """
        self._emitter.initialize(
            request_id=self._turn.context_id,
            sample_rate=self._options.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=self._in_segment,
        )
        try:
            while not self._turn.is_over:
                try:
                    await self._receive(await self._next())
                except Exception as error:  # the history has what was heard, whatever failed
                    self._break_off(api_error(error, self._turn.context_id))
            if self._error is not None:
                await self.end_audio()
                raise self._error
            self._show(len(self._turn.text), self._playout.samples, self._playout.samples)
        finally:
            self._turn.abandon_context()

    async def end_audio(self) -> None:
        """Pass on all audio that has arrived, and count it; otherwise LiveKit drops the end."""
        self._emitter.end_input()
        await self._emitter.join()

    async def _next(self) -> _Item | None:
        """The next item of the inbox; None when it is time to resume.

        Raises:
            APITimeoutError: the server is silent for too long.
        """
        waits_s = [
            wait_s for wait_s in (self._patience_s(), self._resume_in_s()) if wait_s is not None
        ]
        try:
            async with asyncio.timeout(min(waits_s, default=None)):
                return await self._inbox.get()
        except TimeoutError:
            # Checked again: after a busy moment, items that have arrived come before a timeout.
            if self._inbox.empty() and self._patience_s() == 0.0:
                raise self._give_up_on_silence() from None
            return None

    def _patience_s(self) -> float | None:
        """How much longer the server may be silent; None while no answer is due."""
        now_s, timeout_s = time.monotonic(), self._conn_options.timeout
        silent_s = self._turn.silent_s(now_s)
        if self._is_unanswered:
            silent_s, timeout_s = now_s - self._opened_at, min(_ANSWER_TIMEOUT_S, timeout_s)
        return None if silent_s is None else max(0.0, timeout_s - silent_s)

    @property
    def _is_unanswered(self) -> bool:
        turn = self._turn
        return turn.record is not None and turn.socket.received_at < self._opened_at

    def _give_up_on_silence(self) -> APITimeoutError:
        if self._is_unanswered:
            self._turn.socket.give_up("the server does not answer")
        return APITimeoutError("the server is silent")

    async def _receive(self, item: _Item | None) -> None:
        match item:
            case None:
                if self._resume_in_s() == 0.0:
                    self._resume_at = None
                    await self._speak_rest()
            case APIError():
                raise item
            case str():
                self._append(self._characters.add(item))
                await self._speak_on()
            case ReplyInput.FLUSH:
                self._turn.flush()
            case ReplyInput.END:
                self._append(self._characters.end())
                self._turn.end_text(time.monotonic())
                await self._speak_on()
            case _ if self._turn.is_spoken_by(getattr(item, "context_id", None)):
                await self._receive_event(item)
            case _:
                pass  # of an abandoned context

    async def _receive_event(self, event: ClientEvent) -> None:
        samples, was_audible = self._turn.samples, self.is_audible
        words = self._turn.receive(event, time.monotonic())
        match event:
            case ClientAudio():
                self._play(event.pcm, self._turn.samples - samples)
                if not was_audible and self._turn.record is not None:
                    self._show_ahead(self._turn.placed(self._turn.record.words))
            case WordsMessage():
                placed = self._turn.placed(timestamps_of(event))
                self._on_words(self._turn.context_id, placed)
                if was_audible:
                    self._show_ahead(placed)
            case _:
                pass
        self._add(words)
        if isinstance(event, DoneMessage):
            if event.reason == "limit":
                self._forget_unheard()
            await self._speak_rest()

    # Text to the server.

    def _append(self, text: str) -> None:
        self._turn.append(text, time.monotonic())
        self._playout.text = self._turn.text

    async def _speak_on(self) -> None:
        """Speak what no context speaks, unless an attempt to resume will."""
        if self._turn.record is None and self._resume_at is None:
            await self._speak_rest()

    async def _speak_rest(self) -> None:
        if not self._turn.rest.strip():
            if self._turn.state is TurnState.FINISHING:
                self._end()
            return
        socket = await self._connect()
        self._opened_at = time.monotonic()
        record = self._turn.open_context(socket, self._inbox.put_nowait, self._opened_at)
        socket.send(socket.connection.ping())  # a busy server answers, a dead one does not
        self._announce(record.context_id)
        self._on_sent()

    def _announce(self, context_id: str) -> None:
        if context_id == self._turn.context_id and self._in_segment:
            self._emitter.start_segment(segment_id=context_id)
        # A private name that LiveKit's docstring offers to plugins: its traces list all contexts.
        self._emitter._note_provider_request_id(context_id)

    # Audio and words to LiveKit.

    def _play(self, pcm: bytes, samples: int) -> None:
        if not self.is_audible and self._options.leading_silence_ms:
            self._play_silence(self._options.leading_silence_ms)
        self._push(pcm, samples)

    def _play_silence(self, ms: float) -> None:
        self._push(silence(ms / 1000, self._options.sample_rate), ms_to_samples(ms))

    def _push(self, pcm: bytes, samples: int) -> None:
        if not self.is_audible and self._listener is not None:
            self._listener.hear(self._playout)
        self._playout.play(samples, time.monotonic())
        self._emitter.push(pcm)

    def _add(self, words: list[TurnWord]) -> None:
        self._playout.words += words
        for word in words:
            self._show_word(word.char_end, word.timestamp.later(word.context_start))

    def _show_ahead(self, words: list[WordTimestamp]) -> None:
        """Show words ahead of their audio, so that no transcript is late."""
        for each in words:
            self._show_word(each.word.char_end, each)

    def _show_word(self, char_end: int, times: WordTimestamp) -> None:
        # White space goes with the word before it, so that no transcript begins with any.
        char_end = len(self._turn.text) - len(self._turn.text[char_end:].lstrip())
        end = times.start_sample if times.end_sample is None else times.end_sample
        self._show(char_end, times.start_sample, end, times.confidence)

    def _show(
        self, char_end: int, start: int, end: int, confidence: NotGivenOr[float] = NOT_GIVEN
    ) -> None:
        """Push the text up to `char_end`; times never decrease, because LiveKit bisects them."""
        piece = self._turn.text[self._shown_char_end : char_end]
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

    def _end(self) -> None:
        """End the reply: all its text is spoken, or has no audio at all."""
        if self._turn.text.strip() and not self.is_audible:
            self._play_silence(UNSPOKEN_MS)
        self._playout.is_complete = True
        self._turn.state = TurnState.COMPLETE

    def _break_off(self, error: APIError) -> None:
        """Abandon the failed context, and resume later if the reply is audible and may continue."""
        self._turn.abandon_context()
        self._count_attempt()
        if self.is_audible and self._turn.can_resume(is_retryable=error.retryable):
            wait_s = self._turn.next_wait_s(_retry_after_s(error))
            self._resume_at = time.monotonic() + wait_s
        else:
            error.retryable = error.retryable and not self.is_audible
            self._error, self._turn.state = error, TurnState.FAILED

    def _count_attempt(self) -> None:
        """Keep what the context has spoken; count an attempt without audio.

        While the listener has audio left, it does not count.
        """
        has_audio = self._turn.context_samples > 0
        if self._turn.record is not None:
            self._leave_context()
        if not has_audio and self._playout.left_s(time.monotonic()) == 0.0:
            self._turn.failures += 1

    def _leave_context(self) -> None:
        has_lost_text = self._turn.has_lost_text
        self._add(self._turn.break_off_context())
        if has_lost_text:
            self._playout.forget_after(self._turn.spoken_char_end)
        self._forget_unheard()

    def _forget_unheard(self) -> None:
        """Drop words that are heard when they are spoken again, and are returned again then."""
        self._playout.forget_unheard()
        self._turn.returned_char_end = self._playout.char_end

    def _resume_in_s(self) -> float | None:
        return None if self._resume_at is None else max(0.0, self._resume_at - time.monotonic())


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
        case aiohttp.ClientConnectorError(host=host, port=port, os_error=cause):
            problem = connection_problem(f"{host}:{port}", cause)
            return APIConnectionError(problem, retryable=not speaks_no_tls(cause))
        case aiohttp.ClientError() | OSError():
            return APIConnectionError(f"no connection: {type(error).__name__}")
        case _:  # its text may quote what is spoken
            return APIError(f"unexpected {type(error).__name__}", retryable=False)
