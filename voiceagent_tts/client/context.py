"""One turn on a client's socket: its text goes in, its audio and words come out."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from voiceagent_tts.client.socket import ClientSocket
from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    Cut,
    PlayoutClock,
    WordTimestamp,
    ms_to_samples,
    samples_to_ms,
)
from voiceagent_tts.errors import ConnectionLostError, VoiceAgentError
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientEvent,
    OpenOptions,
    cut_of,
    error_of,
)
from voiceagent_tts.protocol.messages import (
    CancelledMessage,
    DoneMessage,
    ErrorMessage,
    FlushedMessage,
    WarningMessage,
    WordsMessage,
    WordsMovedMessage,
)
from voiceagent_tts.text.cut import TimedText, keep_inside

Event = (
    ClientAudio
    | WordTimestamp
    | WordsMovedMessage
    | FlushedMessage
    | WarningMessage
    | CancelledMessage
    | DoneMessage
)
"""What iterating a context yields; `WordsMovedMessage` has better times of earlier words."""


class ClientContext:
    """A context of the server: send text to it, and iterate it for its events, `DoneMessage` last.

    Iterating raises an error of the server, or `ConnectionLostError`, after all events before it.
    Text that the server refuses (`text_too_long`, `rate_limited`) is dropped, and the context goes
    on without it: the next call that sends raises that error, once; without one, iterating does at
    the end. After `cancel` it yields no more audio or words. As an async context manager, a context
    cancels itself when the block is left before its end.
    """

    def __init__(
        self,
        socket: ClientSocket,
        context_id: str,
        answer_timeout_s: float,
        metadata: dict[str, Any] | None,
        options: OpenOptions,
    ) -> None:
        self._socket = socket
        self._connection = socket.connection
        self._answer_timeout_s = answer_timeout_s
        self._record = socket.open(context_id, self._receive, metadata=metadata, **options)
        self._events: asyncio.Queue[Event | VoiceAgentError | None] = asyncio.Queue()
        self._words_yielded = 0
        self._clock = PlayoutClock()
        self._is_stopped = False  # by this client: audio and words are dropped
        self._is_over = asyncio.Event()  # only `done` may follow
        self._cancelled: Cut | None = None
        self._error: VoiceAgentError | None = None  # the last one of the server or the socket
        self._refusals: deque[VoiceAgentError] = deque()  # those that no call has raised

    @property
    def context_id(self) -> str:
        """The id of this context at the server."""
        return self._record.context_id

    @property
    def text(self) -> str:
        """The text sent so far, without what the server has refused."""
        return self._record.text

    @property
    def words(self) -> Sequence[WordTimestamp]:
        """The words received so far, each with the best time known.

        The iteration yields them as they came, of which the first are often estimates; at the end
        the server repeats them with the times that its aligners have found since.
        """
        return self._record.best_words

    async def send_text(self, text: str) -> None:
        """Append `text`, verbatim.

        Raises:
            InvalidRequestError: the context accepts no more text, or `text` is not valid Unicode.
            VoiceAgentError: the context has failed; or earlier text was refused, and `text` is not
                sent. Then the context goes on, and `dropped` is the place of the refused text.
        """
        self._raise_error()
        await self._send(self._connection.text(self.context_id, text))

    async def flush(self) -> int:
        """Speak the text sent so far; more may follow.

        Returns:
            The `flush_id` of the `FlushedMessage` that will answer.

        Raises:
            VoiceAgentError: as for `send_text`.
        """
        self._raise_error()
        await self._send(self._connection.flush(self.context_id))
        return self._record.flushes

    async def end(self) -> None:
        """End the text of the context: no more will follow. Raises as `send_text`."""
        self._raise_error()
        await self._send(self._connection.end(self.context_id))

    async def cancel(self, played_ms: int | None = None) -> Cut:
        """Stop the context, wait for the server's answer, and return which text was heard.

        Args:
            played_ms: milliseconds of this context's audio that were played, without silence for
                underruns; None for a clock that assumes that audio plays as it arrives.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the context ended too long ago.
            ConnectionLostError: the server does not answer in time.
        """
        self._socket.check_loop()
        if not self._is_over.is_set():
            await self._stop(played_ms)
            async with self._answering("cancel"):
                await self._is_over.wait()
        if self._cancelled is not None:
            return self._cancelled
        return await self.cut(self._played_ms() if played_ms is None else played_ms)

    async def cut(self, played_ms: int) -> Cut:
        """Return which text was heard after `played_ms` of audio, also after the end.

        The server decides; if the socket is lost, the words received so far decide.

        Raises:
            InvalidRequestError: `played_ms` is wrong, or the context ended too long ago.
            ConnectionLostError: the server does not answer in time.
        """
        self._socket.check_loop()
        async with self._answering("cut"):
            answer = await self._socket.ask_cut(self.context_id, played_ms)
        return self.cut_locally(played_ms) if answer is None else answer

    def cut_locally(self, played_ms: int) -> Cut:
        """Return which text was heard, by the words received so far; exact when all arrived.

        Raises:
            InvalidRequestError: `played_ms` is wrong.
        """
        self._connection.cut(self.context_id, played_ms)  # checks it as the server would
        done, words = self._record.done, self._record.best_words
        is_final = done is not None and done.reason in ("complete", "idle")
        if is_final:
            words = keep_inside(words, self._clock.sent_samples)
        timed_text = TimedText(self.text, words, self._clock.sent_samples, is_final)
        return timed_text.cut(ms_to_samples(played_ms))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._socket.check_loop()
        event = await self._events.get()
        if event is None or isinstance(event, VoiceAgentError):
            self._events.put_nowait(event)  # iterating again ends in the same way
            raise event or StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_over.is_set():
            await self._stop(None)

    async def _stop(self, played_ms: int | None) -> None:
        message = self._connection.cancel(self.context_id, played_ms)
        self._is_stopped = True
        while not self._events.empty():
            self._events.get_nowait()
        with suppress(ConnectionLostError):  # a lost socket has ended the context
            await self._send(message)

    async def _send(self, message: str) -> None:
        self._socket.send(message)
        await self._socket.drain()

    @asynccontextmanager
    async def _answering(self, message: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                yield
        except TimeoutError:
            sentence = f"no answer to {message} within {self._answer_timeout_s} s"
            raise ConnectionLostError(sentence) from None

    def _raise_error(self) -> None:
        self._socket.check_loop()
        if self._error is not None and self._is_over.is_set():
            raise self._error
        if self._refusals:
            raise self._refusals.popleft()

    def _played_ms(self) -> int:
        return samples_to_ms(self._clock.played_samples(time.monotonic()))

    def _receive(self, event: ClientEvent) -> None:
        match event:
            case ClientAudio():
                received, rate_hz = self._record.samples_received, self._record.audio.sample_rate
                end_sample = received * SAMPLE_RATE_HZ // rate_hz
                self._clock.send(end_sample - self._clock.sent_samples, time.monotonic())
                self._emit(event)
            case WordsMessage():
                for word in self._record.words[self._words_yielded :]:
                    self._emit(word)
                self._words_yielded = len(self._record.words)
            case WordsMovedMessage() | FlushedMessage() | WarningMessage():
                self._emit(event)
            case CancelledMessage():
                self._cancelled = cut_of(event)
                self._events.put_nowait(event)
                self._is_over.set()
            case DoneMessage():
                if event.reason != "error":
                    self._error = self._refusals[0] if self._refusals else None
                self._events.put_nowait(event)
                self._events.put_nowait(self._error)
                self._is_over.set()
            case ErrorMessage() if self._socket.lost:
                self._error = error_of(event)
                self._events.put_nowait(self._error)
                self._is_over.set()
            case ErrorMessage():
                self._error = error_of(event)
                self._refusals.append(self._error)
            case _:
                pass

    def _emit(self, event: Event) -> None:
        if not self._is_stopped:
            self._events.put_nowait(event)
