"""Raw client of `tts.v1`: one socket, the protocol's client end, and each context's events.

`ClientConnection` rejects messages in the wrong order, gaps in the audio and decreasing word times;
`ReceivedContext` checks the protocol's other guarantees when an event arrives.
"""

import asyncio
import contextlib
import itertools
import json
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any, Self, TypeVar, Unpack

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from testbed.waiting import PATIENCE_S
from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock, WordTimestamp, ms_to_samples
from voiceagent_tts.protocol.client_connection import (
    ClientAudio,
    ClientConnection,
    ClientEvent,
    ContextRecord,
    OpenOptions,
)
from voiceagent_tts.protocol.messages import (
    CancelledMessage,
    CutMessage,
    DoneMessage,
    DrainingMessage,
    ErrorMessage,
    FlushedMessage,
    PongMessage,
    ReadyMessage,
    WordsMessage,
)

_E = TypeVar("_E")


class ReceivedContext:
    def __init__(self, record: ContextRecord, *, timestamps: str, is_paced: bool) -> None:
        self.record = record
        self.events: list[ClientEvent] = []
        self.pcm = bytearray()
        self.flushes: list[FlushedMessage] = []
        self.cancelled: CancelledMessage | None = None
        self.error: ErrorMessage | None = None
        self.timestamps = timestamps
        self.is_paced = is_paced
        self.is_aligned = False
        """Whether words come from an aligner, which receives audio when it is sent."""
        self.words_late = 0
        """Number of messages whose first word had already been played when they arrived."""
        self._clock = PlayoutClock()
        self._words_checked = 0

    @property
    def is_closed(self) -> bool:
        return not self.record.accepts_text

    @property
    def words(self) -> list[WordTimestamp]:
        return self.record.words

    @property
    def done(self) -> DoneMessage:
        """The `done` message; fails if it has not arrived."""
        assert self.record.done is not None, "the context has not ended"
        return self.record.done

    @property
    def audio_ms(self) -> int:
        return self.record.audio.samples_to_ms(self.record.samples_received)

    @property
    def underrun_s(self) -> float:
        """Seconds without audio for a listener that plays audio on arrival."""
        return self._clock.underrun_s

    @property
    def _played_samples(self) -> int:
        """Samples played by a listener that plays audio on arrival."""
        return self._clock.played_samples(time.monotonic())

    def record_event(self, event: ClientEvent) -> None:
        self.events.append(event)
        match event:
            case ClientAudio(pcm=pcm):
                self.pcm += pcm
                samples = len(pcm) // self.record.audio.bytes_per_sample
                samples_24k = samples * SAMPLE_RATE_HZ // self.record.audio.sample_rate
                self._clock.send(samples_24k, time.monotonic())
            case WordsMessage():
                self._check_words(event)
            case FlushedMessage():
                self.flushes.append(event)
                assert event.flush_id == len(self.flushes), "flushes are answered in order"
            case CancelledMessage():
                self.cancelled = event
                assert event.text_spoken + event.text_remaining == self.record.text
            case ErrorMessage():
                self.error = event
            case DoneMessage():
                self._check_end(event)
            case _:
                pass

    def _check_words(self, message: WordsMessage) -> None:
        assert self._words_checked or not self.pcm, "word 0 comes ahead of the first audio"
        if not self.is_aligned:
            assert message.start_ms[0] >= self.audio_ms, "a word comes before its audio"
        self.words_late += ms_to_samples(message.start_ms[0] + 1) < self._played_samples
        for timestamp in self.words[self._words_checked :]:
            word = timestamp.word
            assert word.text == self.record.text[word.char_start : word.char_end]
        self._words_checked = len(self.words)

    def _check_end(self, done: DoneMessage) -> None:
        assert done.audio_ms == self.audio_ms
        if self.record.handle is not None:
            assert done.chars == len(self.record.text)
        assert (done.reason == "cancelled") == (self.cancelled is not None)
        if done.reason == "complete":
            assert len(self.flushes) == self.record.flushes
            if self.timestamps != "none":
                check_coverage(self.record.text, self.words)


def check_coverage(text: str, words: list[WordTimestamp]) -> None:
    """Check that every letter and digit of `text` is inside exactly one word."""
    seen = [0] * len(text)
    for timestamp in words:
        for index in range(timestamp.word.char_start, timestamp.word.char_end):
            seen[index] += 1
    wrong = [i for i, char in enumerate(text) if char.isalnum() and seen[i] != 1]
    assert not wrong, f"characters {wrong} of {text!r} are not in exactly one word"


class Wire:
    """One socket. `contexts` has the events of contexts, `answers` all other events, in order."""

    def __init__(self, websocket: WebSocket) -> None:
        self.websocket = websocket
        self.connection = ClientConnection()
        self.contexts: dict[str, ReceivedContext] = {}
        self.answers: list[ClientEvent] = []
        self._names = itertools.count(1)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, url: str, **options: Any) -> AsyncIterator[Self]:
        """Yield a socket, closed with the block; `options` are those of `websockets`' connect."""
        wire = await cls.connect(url, **options)
        try:
            yield wire
        finally:
            await wire.close()

    @classmethod
    async def connect(cls, url: str, **options: Any) -> Self:
        wire = cls(await connect(url, compression=None, max_size=None, **options))
        await wire.until(ReadyMessage)
        return wire

    async def open(
        self, context_id: str | None = None, **options: Unpack[OpenOptions]
    ) -> ReceivedContext:
        context_id = context_id or f"c{next(self._names)}"
        message = self.connection.open(context_id, **options)
        received = self._expect(context_id, options)
        await self.websocket.send(message)
        return received

    def expect(self, context_id: str, text: str = "") -> ReceivedContext:
        """Expect a context that raw messages open and send `text` to."""
        self.connection.open(context_id)
        received = self._expect(context_id, {})
        received.record.text = text
        return received

    def _expect(self, context_id: str, options: OpenOptions) -> ReceivedContext:
        self.contexts[context_id] = ReceivedContext(
            self.connection.record(context_id),
            timestamps=options.get("timestamps", "word"),
            is_paced=options.get("max_lead_s") != 0,
        )
        return self.contexts[context_id]

    async def text(self, received: ReceivedContext, text: str) -> None:
        await self.websocket.send(self.connection.text(received.record.context_id, text))

    async def flush(self, received: ReceivedContext) -> None:
        await self.websocket.send(self.connection.flush(received.record.context_id))

    async def end(self, received: ReceivedContext) -> None:
        await self.websocket.send(self.connection.end(received.record.context_id))

    async def cancel(self, received: ReceivedContext, played_ms: int | None = None) -> None:
        await self.websocket.send(self.connection.cancel(received.record.context_id, played_ms))

    async def send_raw(self, message: str | bytes | dict[str, Any]) -> None:
        """Send a raw message, also an invalid one."""
        await self.websocket.send(json.dumps(message) if isinstance(message, dict) else message)

    async def say(self, text: str, **options: Unpack[OpenOptions]) -> ReceivedContext:
        """Speak a whole text to its end, by default without pacing."""
        return await self.speak(await self.open(**{"max_lead_s": 0, **options}), text)

    async def speak(self, received: ReceivedContext, *texts: str) -> ReceivedContext:
        """Send the rest of a context's text, and read to its end."""
        for text in texts:
            await self.text(received, text)
        await self.end(received)
        return await self.finish(received)

    async def start(self, text: str, **options: Unpack[OpenOptions]) -> ReceivedContext:
        """Open a context with its whole text, and read up to its first audio."""
        received = await self.open(**options)
        await self.text(received, text)
        await self.end(received)
        await self.until(ClientAudio, received)
        return received

    async def stop(
        self, received: ReceivedContext, played_ms: int | None = None
    ) -> ReceivedContext:
        await self.cancel(received, played_ms)
        return await self.finish(received)

    async def finish(self, received: ReceivedContext) -> ReceivedContext:
        while received.record.done is None:
            await self.receive()
        return received

    async def receive(self, timeout_s: float = PATIENCE_S) -> ClientEvent:
        """Receive and record the next event."""
        event = None
        async with asyncio.timeout(timeout_s):
            while event is None:
                event = self.connection.receive(await self.websocket.recv())
        self._take(event)
        return event

    async def until(self, kind: type[_E], received: ReceivedContext | None = None) -> _E:
        """Read up to the next event of a kind, optionally of one context."""
        while True:
            event = await self.receive()
            is_wanted = received is None or (bool(received.events) and received.events[-1] is event)
            if isinstance(event, kind) and is_wanted:
                return event

    def _take(self, event: ClientEvent) -> None:
        match event:
            case ErrorMessage(context_id=str(context_id)) if context_id in self.contexts:
                self.contexts[context_id].record_event(event)
                self.answers.append(event)
            case ErrorMessage() | CutMessage() | PongMessage() | ReadyMessage() | DrainingMessage():
                self.answers.append(event)
            case _:
                self.contexts[event.context_id].record_event(event)

    async def close(self) -> None:
        """Close the socket properly; reads the pending messages before the reply to the close."""
        closing = asyncio.create_task(self.websocket.close())
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self.websocket.recv()
        await closing

    def reset(self) -> None:
        """Break the connection with a TCP reset, as a crashed client's machine does."""
        raw: socket.socket = self.websocket.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.websocket.transport.abort()
