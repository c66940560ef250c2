"""`POST /v1/audio/speech`: OpenAI's request, answered while it is spoken.

One context, unpaced: the client's reading is the only brake. Errors before the first sound are HTTP
errors; after it the body ends early. A client that goes cancels its context.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.audio.containers import CONTENT_TYPES, ContainerEncoder, ContainerFormat
from voiceagent_tts.core import AudioChunk
from voiceagent_tts.errors import (
    ConnectionLostError,
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.server.shell import Shell
from voiceagent_tts.synthesizer import (
    Context,
    ContextDone,
    ContextEvent,
    ContextFailed,
    ContextOptions,
)

MODELS = ("qwen3-tts", "tts-1", "tts-1-hd")
"""OpenAI's names are aliases, so that programs written for OpenAI run unchanged."""

_DISCONNECT_POLL_S = 0.2

router = APIRouter(tags=["speech"])


class VoiceId(BaseModel):
    """A voice as newer OpenAI clients name it."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=256)]


class SpeechRequest(BaseModel):
    """The body, with OpenAI's fields; `language` and `seed` are ours."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str = Field(
        "qwen3-tts",
        description="One of `qwen3-tts`, `tts-1`, `tts-1-hd`, with a language behind it if it is "
        "known: `tts-1-hd-zh`.",
    )
    input: str = Field(description="The text to speak.")
    voice: str | VoiceId | None = None
    instructions: Annotated[str, StringConstraints(max_length=4096)] | None = None
    response_format: ContainerFormat = "mp3"
    speed: Annotated[float, Field(ge=0.5, le=2.0)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"
    language: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = None

    def options(self) -> ContextOptions:
        """The context that speaks this request.

        Raises:
            InvalidRequestError: an unknown model.
        """
        voice = self.voice.id if isinstance(self.voice, VoiceId) else self.voice
        return ContextOptions(
            voice=voice,
            language=self.language or _language_of(self.model),
            instruct=self.instructions,
            speed=self.speed,
            seed=self.seed,
            max_lead_s=0,
            text_feeding="segment",  # the whole text is here
        )


@router.post("/v1/audio/speech", response_class=StreamingResponse)
async def speak(request: Request, body: SpeechRequest) -> StreamingResponse:
    """Speak `input` and stream the audio in `response_format`."""
    shell: Shell = request.app.state.shell
    if shell.is_draining:
        raise OverloadedError("the server is shutting down", code=ErrorCode.DRAINING)
    if not body.input.strip():
        raise InvalidRequestError(
            "input: expected text to speak, got none", code=ErrorCode.INVALID_PARAM
        )
    context = await shell.synthesizer.open(body.options())
    try:
        context.push_text(body.input)
        context.finish()
        events = aiter(context)
        first = await _first_audio(request, events, shell.settings.first_audio_s)
    except BaseException:
        context.abandon()
        raise
    encoder = ContainerEncoder(body.response_format)
    audio = _encoded(context, first, events, encoder)
    if body.stream_format == "sse":
        return StreamingResponse(_as_sse(audio), media_type="text/event-stream")
    return StreamingResponse(audio, media_type=CONTENT_TYPES[body.response_format])


async def _first_audio(
    request: Request, events: AsyncIterator[ContextEvent], timeout_s: float
) -> AudioChunk:
    """The first audio, unless the client goes, the engine fails, or there is nothing to say."""
    waiting = asyncio.ensure_future(_skip_to_audio(events))
    try:
        async with asyncio.timeout(timeout_s):
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_DISCONNECT_POLL_S)
                if not waiting.done() and await request.is_disconnected():
                    raise ConnectionLostError("the client went before the first audio")
        return waiting.result()
    except TimeoutError:
        raise EngineError(f"the engine made no sound within {timeout_s:g} s") from None
    finally:
        waiting.cancel()


async def _skip_to_audio(events: AsyncIterator[ContextEvent]) -> AudioChunk:
    error: VoiceAgentError = InvalidRequestError(
        "input: expected letters or digits to speak, got only signs",
        code=ErrorCode.TEXT_UNSPEAKABLE,
    )
    async for event in events:
        match event:
            case AudioChunk():
                return event
            case ContextFailed(cause):
                error = cause
            case ContextDone():
                break
            case _:
                pass
    raise error


async def _encoded(
    context: Context,
    first: AudioChunk,
    events: AsyncIterator[ContextEvent],
    encoder: ContainerEncoder,
) -> AsyncIterator[bytes]:
    try:
        if data := encoder.push(first.pcm):
            yield data
        async for event in events:
            match event:
                case AudioChunk(_, pcm):
                    if data := encoder.push(pcm):
                        yield data
                case ContextFailed(error):
                    raise error  # the body ends without its last chunk: the client sees a cut
                case _:
                    pass
        yield encoder.finish()
    finally:
        context.abandon()


async def _as_sse(audio: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """OpenAI's `stream_format: sse`."""
    async for data in audio:
        delta = base64.b64encode(data).decode()
        yield _sse_event({"type": "speech.audio.delta", "audio": delta})
    yield _sse_event({"type": "speech.audio.done"})


def _sse_event(fields: dict[str, str]) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def _language_of(model: str) -> str | None:
    """The language behind a model's name: `zh` of `tts-1-hd-zh`."""
    for name in sorted(MODELS, key=len, reverse=True):
        if model == name:
            return None
        if model.startswith(f"{name}-"):
            return model.removeprefix(f"{name}-")
    raise InvalidRequestError(
        f"model: expected one of {', '.join(MODELS)}, with a language behind it if you like "
        f"(tts-1-hd-zh); got {model[:64]!r}",
        code=ErrorCode.INVALID_PARAM,
    )
