"""`POST /v1/audio/speech` and `/tts/bytes`: speak a whole text, streaming the audio.

The first route has OpenAI's fields, also under SimpliSmart's names; the second is Cartesia's. A
request is one context without pacing: audio is sent as fast as the client reads. A streamed body
is taken to be played on arrival, so it has the deadlines of a listener; a request can give them up
with `priority`. An error before the first audio is an HTTP error; after it, the body ends early. A
client that disconnects cancels its context.
"""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.audio.containers import (
    CONTENT_TYPES,
    ContainerEncoder,
    ContainerFormat,
)
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.protocol.dialects.cartesia import BytesRequest
from voiceagent_tts.protocol.messages import LexiconEntries, Speed
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.context_log import Origin
from voiceagent_tts.server.request_log import request_id_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.context import Context
from voiceagent_tts.synthesizer.events import (
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextWords,
)
from voiceagent_tts.synthesizer.options import ContextOptions
from voiceagent_tts.tracing.spans import TRACEPARENT

MODELS = ("qwen3-tts", "qwen-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names of models, with aliases for programs that were written for other services."""

_L16 = "audio/l16"
_DISCONNECT_POLL_S = 0.2

router = APIRouter(tags=["speech"])


class VoiceId(BaseModel):
    """A voice in the form of newer OpenAI clients."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]


class SpeechRequest(BaseModel):
    """The body: OpenAI's fields, and `language`, `seed` and `leading_silence`."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str = Field(
        "qwen3-tts",
        description="One of `qwen3-tts`, `tts-1`, `tts-1-hd`; may end with a language code: "
        "`tts-1-hd-zh`.",
    )
    input: str = Field(
        description="The text to speak; also as `text`.",
        validation_alias=AliasChoices("input", "text"),
    )
    voice: str | VoiceId | None = Field(
        None, description="Also as `speaker`.", validation_alias=AliasChoices("voice", "speaker")
    )
    instructions: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        None,
        description="How to speak; also as `instruct`.",
        validation_alias=AliasChoices("instructions", "instruct"),
    )
    response_format: ContainerFormat | None = Field(
        None, description="`mp3` by default; `pcm` if the request accepts `audio/L16`."
    )
    leading_silence: bool = Field(
        False, description="Whether the silence before the first sound is sent."
    )
    speed: Speed = 1.0
    stream: bool = Field(
        True,
        description="Whether audio is sent while it is generated. If false, the answer comes when "
        "all audio is there, with its length: WAV and FLAC files have an exact header.",
    )
    stream_format: Literal["audio", "sse"] = "audio"
    priority: Literal["live", "batch"] | None = Field(
        None,
        description="`live` for audio that is played on arrival, `batch` for files, which never "
        "delay a listener. By default `live`, and `batch` if `stream` is false.",
    )
    language: str | None = None
    lexicon: LexiconEntries | None = Field(
        None,
        description="How written words are said: a respelling, IPA between slashes, or an object "
        "with `say`, `ipa` or both.",
    )
    markup: bool = Field(
        False, description='Whether tags in the text have an effect: `<break time="300ms"/>`.'
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether audio is sent while it is generated."""
        return self.stream or self.stream_format == "sse"

    @property
    def is_batch(self) -> bool:
        """Whether the audio has no listener while it is generated."""
        return self.priority == "batch" or (self.priority is None and not self.is_streamed)

    def options(self) -> ContextOptions:
        """Options of the context for this request.

        Raises:
            InvalidRequestError: the model is unknown.
        """
        voice = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        return ContextOptions(
            voice=voice,
            language=self.language or language_of(self.model),
            speech=SpeechOptions(
                instruct=self.instructions,
                speed=self.speed,
                seed=self.seed,
                keeps_silence=self.leading_silence,
                is_batch=self.is_batch,
            ),
            max_lead_s=0,
            text_feeding="segment",  # the whole text is here
            wants_words=False,
            lexicon=check_entries(self.lexicon or {}),
            has_markup=self.markup,
        )


@router.post("/v1/audio/speech", response_class=StreamingResponse)
async def speak(request: Request, body: SpeechRequest) -> Response:
    """Speak `input` and stream the audio in `response_format`."""
    pcm = await start_speaking(request, body.input, body.options())
    container_format, content_type = _answer_format(body, request.headers.get("accept", ""))
    encoder = ContainerEncoder(container_format)
    audio = encoded(pcm, encoder)
    headers = _pcm_headers(SAMPLE_RATE_HZ) if container_format == "pcm" else None
    if not body.is_streamed:
        data = await _collected(request, audio)
        encoder.write_length(data)
        return Response(bytes(data), media_type=content_type, headers=headers)
    if body.stream_format == "sse":
        return StreamingResponse(_as_sse(audio), media_type="text/event-stream")
    return StreamingResponse(audio, media_type=content_type, headers=headers)


async def _collected(request: Request, audio: AsyncGenerator[bytes, None]) -> bytearray:
    """All of the audio; the server's `max_audio_s` limits it, and with it the memory."""
    data = bytearray()
    async with aclosing(audio):
        async for piece in audio:
            data += piece
            if await request.is_disconnected():
                raise ConnectionLostError("the client disconnected before the audio was complete")
    return data


@router.post("/tts/bytes", response_class=StreamingResponse)
async def speak_as_cartesia(request: Request, body: BytesRequest) -> StreamingResponse:
    """Speak `transcript` and stream the samples, as Cartesia's API does."""
    options = ContextOptions(
        voice=body.voice.name,
        language=body.language,
        speech=SpeechOptions(speed=body.speed),
        max_lead_s=0,
        text_feeding="segment",
        wants_words=False,
        has_markup=True,
    )
    pcm = await start_speaking(request, body.transcript, options)
    output = OutputStream(body.output_format.encoding, body.output_format.sample_rate)
    headers = _pcm_headers(body.output_format.sample_rate)
    return StreamingResponse(encoded(pcm, output), media_type="audio/pcm", headers=headers)


def _pcm_headers(sample_rate_hz: int) -> dict[str, str]:
    """What a client must know to play samples that have no header of their own."""
    return {"X-Sample-Rate": str(sample_rate_hz), "X-Channels": "1"}


def _answer_format(body: SpeechRequest, accept: str) -> tuple[ContainerFormat, str]:
    """The format of the audio, and its Content-Type."""
    if body.response_format is None and _L16 in accept.lower():
        # Little-endian, unlike RFC 2586: SimpliSmart's clients expect it.
        return "pcm", f"audio/L16;rate={SAMPLE_RATE_HZ};channels=1"
    container_format = body.response_format or "mp3"
    return container_format, CONTENT_TYPES[container_format]


async def start_speaking(
    request: Request, text: str, options: ContextOptions
) -> AsyncGenerator[bytes, None]:
    """Start to speak a text; returns its PCM when the first audio is there."""
    return _pcm(await start_timed(request, text, options))


async def start_timed(
    request: Request, text: str, options: ContextOptions
) -> AsyncGenerator[AudioChunk | ContextWords, None]:
    """Start to speak a text; returns its audio and its words when the first audio is there."""
    state: ServerState = request.app.state.server
    if state.is_draining:
        raise OverloadedError("the server is shutting down", code=ErrorCode.DRAINING)
    if not text.strip():
        raise InvalidRequestError("expected text to speak, got none", code=ErrorCode.INVALID_PARAM)
    max_chars = state.synthesizer.limits.max_text_chars
    if len(text) > max_chars:
        raise InvalidRequestError(
            f"expected at most {max_chars} characters of text in one request, got {len(text)}; "
            "send several requests, or stream the text over the WebSocket",
            code=ErrorCode.TEXT_TOO_LONG,
        )
    ids = {"request_id": request_id_of(request.scope)}
    traceparent = request.headers.get(TRACEPARENT)
    origin = Origin(caller_of(request.scope), request.url.path, ids, traceparent)
    turn = await state.turns.open(origin, options, chars=len(text))
    context = turn.context
    try:
        await turn.push_text(text)
        context.finish()
        events = aiter(context)
        first = await _first_audio(request, events, state.settings.first_audio_s)
    except BaseException:
        context.abandon()
        raise
    return _timed(context, first, events)


async def _first_audio(
    request: Request, events: AsyncIterator[ContextEvent], timeout_s: float
) -> list[AudioChunk | ContextWords]:
    """Wait for the first audio; raises if the client disconnects or no audio will come.

    Returns:
        The words that came before the audio, and the audio.
    """
    waiting = asyncio.ensure_future(_up_to_audio(events))
    try:
        async with asyncio.timeout(timeout_s):
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_DISCONNECT_POLL_S)
                if not waiting.done() and await request.is_disconnected():
                    raise ConnectionLostError("the client disconnected before the first audio")
        return waiting.result()
    except TimeoutError:
        raise EngineError(f"the engine generated no audio within {timeout_s:g} s") from None
    finally:
        waiting.cancel()


async def _up_to_audio(
    events: AsyncIterator[ContextEvent],
) -> list[AudioChunk | ContextWords]:
    before: list[AudioChunk | ContextWords] = []
    error: VoiceAgentError = InvalidRequestError(
        "expected letters or digits to speak, got only punctuation",
        code=ErrorCode.TEXT_UNSPEAKABLE,
    )
    async for event in events:
        match event:
            case AudioChunk():
                return [*before, event]
            case ContextWords():
                before.append(event)
            case ContextFailed(cause):
                error = cause
            case ContextDone():
                break
            case _:
                pass
    raise error


async def _pcm(
    events: AsyncGenerator[AudioChunk | ContextWords, None],
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, AudioChunk):
                yield event.pcm


async def _timed(
    context: Context,
    first: list[AudioChunk | ContextWords],
    events: AsyncIterator[ContextEvent],
) -> AsyncGenerator[AudioChunk | ContextWords, None]:
    failure: VoiceAgentError | None = None
    try:
        for each in first:
            yield each
        async for event in events:
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
    finally:
        context.abandon()


async def encoded(
    pcm: AsyncGenerator[bytes, None], encoder: ContainerEncoder | OutputStream
) -> AsyncGenerator[bytes, None]:
    """The audio of `pcm` in the form of `encoder`."""
    async with aclosing(pcm):
        async for piece in pcm:
            if data := encoder.push(piece):
                yield data
    if data := encoder.finish():
        yield data


async def _as_sse(audio: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Audio as server-sent events: OpenAI's `stream_format: sse`."""
    async for data in audio:
        delta = base64.b64encode(data).decode()
        yield _sse_event({"type": "speech.audio.delta", "audio": delta})
    yield _sse_event({"type": "speech.audio.done"})


def _sse_event(fields: dict[str, str]) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def language_of(model: str) -> str | None:
    """The language at the end of a model's name: `zh` for `tts-1-hd-zh`.

    Raises:
        InvalidRequestError: there is no such model.
    """
    for name in sorted(MODELS, key=len, reverse=True):
        if model == name:
            return None
        if model.startswith(f"{name}-"):
            return model.removeprefix(f"{name}-")
    raise InvalidRequestError(
        f"model: expected one of {', '.join(MODELS)}, optionally with a language code "
        f"(tts-1-hd-zh), got {model[:64]!r}",
        code=ErrorCode.INVALID_PARAM,
    )
