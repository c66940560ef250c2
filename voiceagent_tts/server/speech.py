"""`POST /v1/audio/speech` and `/tts/bytes`: speak a whole text, streaming the audio.

The first route has OpenAI's fields, also under SimpliSmart's names; the second is Cartesia's. A
request is one context without pacing: audio is sent as fast as the client reads. A streamed body
is taken to be played on arrival, so it has the deadlines of a listener; a request can give them up
with `priority`. An error before the first audio is an HTTP error; after it, the body ends early. A
client that disconnects cancels its context.
"""

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from voiceagent_tts.audio.containers import (
    CONTENT_TYPES,
    ContainerEncoder,
    ContainerFormat,
)
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ConnectionLostError, ErrorCode, InvalidRequestError
from voiceagent_tts.lexicon import check_entries
from voiceagent_tts.protocol.dialects.cartesia import BytesRequest
from voiceagent_tts.protocol.messages import LexiconEntries, Speed
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.server.speaking import Speech, speak_for
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.options import ContextOptions

MODELS = ("qwen3-tts", "qwen-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names of models, with aliases for programs that were written for other services."""

_L16 = "audio/l16"

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
    cache: bool = Field(
        True, description="Whether phrases that were spoken before may come from the cache."
    )

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
            cache="use" if self.cache else "off",
        )


@router.post("/v1/audio/speech", response_class=StreamingResponse)
async def speak(request: Request, body: SpeechRequest) -> Response:
    """Speak `input` and stream the audio in `response_format`."""
    speech = await speak_for(request, body.input, body.options())
    container_format, content_type = _answer_format(body, request.headers.get("accept", ""))
    if not body.is_streamed:
        return await _whole_answer(request, speech, container_format, content_type)
    audio = encoded(speech.pcm(), ContainerEncoder(container_format))
    headers = provenance_headers(speech)
    if container_format == "pcm":
        headers |= _pcm_headers(SAMPLE_RATE_HZ)
    if body.stream_format == "sse":
        events = _as_sse(speech, audio)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    return StreamingResponse(audio, media_type=content_type, headers=headers)


async def _whole_answer(
    request: Request, speech: Speech, container_format: ContainerFormat, content_type: str
) -> Response:
    """The file with its length, its digest, and its manifest if the server signs files."""
    state: ServerState = request.app.state.server
    encoder = ContainerEncoder(container_format)
    data = await _collected(request, encoded(speech.pcm(), encoder))
    encoder.write_length(data)
    provenance = speech.provenance(is_complete=True)
    file = await state.provenance.signed(bytes(data), container_format, provenance)
    headers = provenance_headers(speech, is_complete=True)
    if container_format == "pcm":
        headers |= _pcm_headers(SAMPLE_RATE_HZ)
    return Response(file, media_type=content_type, headers=headers)


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
    speech = await speak_for(request, body.transcript, options)
    output = OutputStream(body.output_format.encoding, body.output_format.sample_rate)
    headers = provenance_headers(speech) | _pcm_headers(body.output_format.sample_rate)
    audio = encoded(speech.pcm(), output)
    return StreamingResponse(audio, media_type="audio/pcm", headers=headers)


def provenance_headers(speech: Speech, *, is_complete: bool = False) -> dict[str, str]:
    """Where the audio comes from; the digest is known when all of it was read."""
    return {"X-Provenance": json.dumps(speech.provenance(is_complete=is_complete).as_json())}


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


async def _as_sse(speech: Speech, audio: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Audio as server-sent events: OpenAI's `stream_format: sse`."""
    async for data in audio:
        delta = base64.b64encode(data).decode()
        yield _sse_event({"type": "speech.audio.delta", "audio": delta})
    provenance = speech.provenance(is_complete=True).as_json()
    yield _sse_event({"type": "speech.audio.done", "provenance": provenance})


def _sse_event(fields: dict[str, Any]) -> str:
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
