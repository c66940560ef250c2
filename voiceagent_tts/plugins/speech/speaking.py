"""Speaks a complete text without pacing, for requests and jobs, as a stream or as a whole file.

An error before the first audio is raised by `start_speaking`, a later one by the iteration. The
context is cancelled when its listener disconnects.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from voiceagent_tts.audio.output import DeliveredAudio
from voiceagent_tts.core import SAMPLE_RATE_HZ, TRACEPARENT, AudioChunk
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    InvalidRequestError,
    VoiceAgentError,
)
from voiceagent_tts.plugins.speech.containers import (
    CONTENT_TYPES,
    ContainerEncoder,
    ContainerFormat,
)
from voiceagent_tts.plugins.speech.encoding import AnswerEncoder, file_encoder, silent_reply
from voiceagent_tts.protocol.messages import ProvenanceFields
from voiceagent_tts.server.admission import Origin
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.error_answers import ERROR_CODE, log_if_unexpected
from voiceagent_tts.server.held import HOLD, Hold
from voiceagent_tts.server.request_log import request_id_of
from voiceagent_tts.server.socket_context import provenance_of
from voiceagent_tts.server.state import AudioFile, ServerState, draining_error
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import ContextDone, ContextFailed, ContextWords
from voiceagent_tts.synthesizer.options import ContextOptions

FIRST_AUDIO_S = 30.0
"""How long an HTTP request waits for its first audio."""
_DISCONNECT_POLL_S = 0.2
_SLICE_BYTES = 96 << 10
"""Part of a file that is sent in one iteration of the event loop. It is a multiple of 3: the base64
of the slices is that of the file."""


def provenance_headers(provenance: ProvenanceFields) -> dict[str, str]:
    """The header that says where audio comes from."""
    return {"X-Provenance": json.dumps(provenance.model_dump())}


@dataclass(frozen=True, slots=True)
class Listener:
    """Who receives the audio.

    Attributes:
        origin: the caller and the ids, for limits and logs.
        is_gone: whether the listener has disconnected.
        hold: counts the memory that is held for the listener.
    """

    origin: Origin
    is_gone: Callable[[], Awaitable[bool]]
    hold: Hold


class Speech:
    """A text that is being spoken: its audio, its words, and where it comes from.

    Iterate `events`, `pcm` or `unfiltered_pcm`, once, and to the end or within `aclosing`.
    """

    def __init__(
        self,
        context: Context,
        first: list[AudioChunk | ContextWords],
        events: AsyncIterator[AudioChunk | ContextWords],
        delivered: DeliveredAudio,
    ) -> None:
        self._context = context
        self._first = first
        self._events = events
        self._delivered = delivered
        self.samples = 0
        """Samples at 24 kHz that were read so far."""

    def provenance(self, *, is_complete: bool) -> ProvenanceFields:
        """Describe the audio; the digest is of the 24 kHz samples, and known when all were read."""
        model = self._context.worker.capabilities.model
        return provenance_of(self._delivered, model, is_complete=is_complete)

    async def events(self) -> AsyncGenerator[AudioChunk | ContextWords, None]:
        """Yield words and filtered audio; raises what ended the audio early."""
        async with aclosing(self._unfiltered()) as events:
            async for event in events:
                if isinstance(event, AudioChunk):
                    self.samples += event.samples
                    event = AudioChunk(event.start_sample, await self._filtered(event.pcm))
                    self._delivered.add_sent(event.pcm)
                yield event

    async def pcm(self) -> AsyncGenerator[bytes, None]:
        """Yield the filtered audio."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, AudioChunk):
                    yield event.pcm

    async def unfiltered_pcm(self) -> AsyncGenerator[bytes, None]:
        """Yield the audio without a watermark, for the server's own use."""
        async with aclosing(self._unfiltered()) as events:
            async for event in events:
                if isinstance(event, AudioChunk):
                    yield event.pcm

    async def _filtered(self, pcm: bytes) -> bytes:
        filtered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._delivered.filter(
            pcm, lambda data: None if filtered.cancelled() else filtered.set_result(data)
        )
        return await filtered

    async def _unfiltered(self) -> AsyncGenerator[AudioChunk | ContextWords, None]:
        try:
            for event in self._first:
                yield event
            async for event in self._events:
                yield event
        finally:
            self._context.abandon()


async def _said(context: Context) -> AsyncGenerator[AudioChunk | ContextWords, None]:
    """Yield words and audio; at the end, raise what ended the audio early."""
    failure: VoiceAgentError | None = None
    async for event in context:
        match event:
            case AudioChunk() | ContextWords():
                yield event
            case ContextFailed(error):
                failure = error
            case ContextDone(reason="limit"):
                failure = InvalidRequestError(
                    "input: expected a text that can be spoken within max_audio_s",
                    code=ErrorCode.TEXT_TOO_LONG,
                )
            case _:
                pass
    if failure is not None:
        raise failure  # the body ends without its last chunk, so the client notices


def check_text(state: ServerState, text: str) -> None:
    """Check a text before anything is started for it."""
    max_chars = state.synthesizer.limits.max_text_chars
    if len(text) > max_chars:
        raise InvalidRequestError(
            f"expected at most {max_chars} characters of text in one request, got {len(text)}; "
            "send several requests, or stream the text over the WebSocket",
            code=ErrorCode.TEXT_TOO_LONG,
        )


async def speak_for(request: Request, text: str, options: ContextOptions) -> Speech:
    """Start to speak for an HTTP request; returns when the first audio has arrived."""
    state: ServerState = request.app.state.server
    return await start_speaking(state, listener_of(request), text, options)


def listener_of(request: Request) -> Listener:
    """The client of an HTTP request."""
    ids = {"request_id": request_id_of(request.scope)}
    traceparent = request.headers.get(TRACEPARENT)
    origin = Origin(caller_of(request.scope), request.url.path, ids, traceparent)
    return Listener(origin, request.is_disconnected, request.scope[HOLD])


async def start_speaking(
    state: ServerState, listener: Listener, text: str, options: ContextOptions
) -> Speech:
    """Start to speak a text; returns when the first audio has arrived.

    The audio of a text without speech is a moment of silence.

    Raises:
        InvalidRequestError: the text or the options cannot be spoken.
        OverloadedError: there is no capacity, or the server is shutting down.
        EngineError: the engine failed, or generated no audio in time.
        ConnectionLostError: the listener is gone.
    """
    if state.is_draining:
        raise draining_error()
    check_text(state, text)
    admitted = await state.opener.open(listener.origin, options, chars=len(text))
    context = admitted.context
    try:
        await admitted.push_text(text)
        context.finish()
        events = _said(context)
        first = await _first_audio(listener, events, FIRST_AUDIO_S)
    except BaseException:
        context.abandon()
        raise
    return Speech(context, first, events, DeliveredAudio(state.audio_filter))


async def _first_audio(
    listener: Listener,
    events: AsyncIterator[AudioChunk | ContextWords],
    timeout_s: float,
) -> list[AudioChunk | ContextWords]:
    """Wait for the first audio; raises if the listener is gone or no audio will come."""
    waiting = asyncio.ensure_future(_until_audio(events))
    try:
        async with asyncio.timeout(timeout_s):
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_DISCONNECT_POLL_S)
                if not waiting.done() and await listener.is_gone():
                    raise ConnectionLostError("the client disconnected before the first audio")
        return waiting.result()
    except TimeoutError:
        raise EngineError(f"the engine generated no audio within {timeout_s:g} s") from None
    finally:
        waiting.cancel()


async def _until_audio(
    events: AsyncIterator[AudioChunk | ContextWords],
) -> list[AudioChunk | ContextWords]:
    first: list[AudioChunk | ContextWords] = []
    async for event in events:
        first.append(event)
        if isinstance(event, AudioChunk):
            return first
    return [*first, AudioChunk(0, silent_reply())]


@dataclass(frozen=True, slots=True)
class SpeechFile:
    """A complete file of speech.

    Attributes:
        data: the file, with an exact header, and as the server's file filter returns it.
        content_type: its Content-Type.
        audio_ms: its duration.
        provenance: where its audio comes from.
    """

    data: AudioFile
    content_type: str
    audio_ms: int
    provenance: ProvenanceFields

    async def slices(self) -> AsyncGenerator[bytes, None]:
        """Yield the file in parts; other tasks run between them."""
        data = memoryview(self.data)
        for start in range(0, len(data), _SLICE_BYTES):
            yield bytes(data[start : start + _SLICE_BYTES])
            await asyncio.sleep(0)


async def collect_file(
    state: ServerState,
    listener: Listener,
    speech: Speech,
    container_format: ContainerFormat,
    sample_rate_hz: int,
) -> SpeechFile:
    """Encode all audio of a speech; the server's `max_audio_s` limits it, and `held` the memory.

    The returned file counts as held; after an error, none of it does.

    Raises:
        ConnectionLostError: the listener is gone.
        InvalidRequestError: the files of the request are too large together.
        OverloadedError: the caller holds too much memory.
        VoiceAgentError: the speech has ended early.
    """
    data = bytearray()
    try:
        encoder = file_encoder(container_format, sample_rate_hz, listener.origin.caller.owner)
        await _encode(listener, speech, encoder, data)
        provenance = speech.provenance(is_complete=True)
        file: AudioFile = data
        if state.file_filter is not None:
            file = await state.file_filter(file, container_format, provenance)
    except BaseException:
        listener.hold.give_back(len(data))
        raise
    audio_ms = round(1000 * speech.samples / SAMPLE_RATE_HZ)
    return SpeechFile(file, CONTENT_TYPES[container_format], audio_ms, provenance)


async def _encode(
    listener: Listener,
    speech: Speech,
    answer: AnswerEncoder[ContainerEncoder],
    data: bytearray,
) -> None:
    """Append the file to `data`; all appended bytes have been counted as held."""
    async with aclosing(answer.encoded(speech.pcm())) as audio:
        async for piece in audio:
            listener.hold.take(len(piece))
            data += piece
            if await listener.is_gone():
                raise ConnectionLostError("the client disconnected before the audio was complete")
    answer.encoder.write_length(data)


class SpeechResponse(StreamingResponse):
    """Streams speech until the client leaves; counts and logs the error that ends it early.

    The status has been sent by then, so the client notices the error by the missing last chunk.
    Starlette's own way to notice that the client left keeps all that the answer used until a full
    garbage collection (anyio's task group: its exception and its frame hold each other).
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer to a request."""
        self._scope = scope
        sending = asyncio.create_task(self.stream_response(send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait((sending, leaving))
        if not sending.cancelled():
            sending.result()

    async def stream_response(self, send: Send) -> None:
        """Send the headers and the body."""
        try:
            await super().stream_response(send)
        except VoiceAgentError as error:
            state: ServerState = self._scope["app"].state.server
            state.metrics.errors.labels(error.code).inc()
            self._scope[ERROR_CODE] = error.code.value
            log_if_unexpected(error, request_id=request_id_of(self._scope))
