"""`POST /v1/audio/speech`: speak a whole text, streaming the audio.

The fields are OpenAI's, also under SimpliSmart's names. A request is one context without pacing:
audio is sent as fast as the client reads. A streamed body is taken to be played on arrival, so it
has the deadlines of a listener; a request can give them up with `priority`. An error before the
first audio is an HTTP error; after it, the body ends early. A client that disconnects cancels its
context.

The audio is the body, or base64 in JSON objects: server-sent events with OpenAI's names, or JSON
lines. Every object has a `type`; words and their times come before their audio. An error is
reported as an object, and `speech.audio.done` does not follow.
"""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response

from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.plugins.speech import models
from voiceagent_tts.plugins.speech.containers import (
    CONTENT_TYPES,
    ContainerEncoder,
    ContainerFormat,
)
from voiceagent_tts.plugins.speech.encoding import AnswerEncoder, stream_encoder
from voiceagent_tts.plugins.speech.request import Served, SpeechRequest
from voiceagent_tts.plugins.speech.speaking import (
    Speech,
    SpeechResponse,
    collect_file,
    listener_of,
    provenance_headers,
    start_speaking,
)
from voiceagent_tts.protocol.messages import WordList
from voiceagent_tts.server.state import ServerHooks, ServerState
from voiceagent_tts.synthesizer.events import ContextWords

_L16 = "audio/l16"
_WORDS = "speech.audio.words"

router = APIRouter(tags=["speech"])


def add_to_server(hooks: ServerHooks) -> None:
    """Add the routes."""
    hooks.app.include_router(router)
    hooks.app.include_router(models.router)


@router.post("/v1/audio/speech", response_class=SpeechResponse)
async def speak(request: Request, body: SpeechRequest) -> Response:
    """Speak `input` and stream the audio in `response_format`."""
    state: ServerState = request.app.state.server
    listener = listener_of(request)
    options = body.options(Served.to(state, listener.origin.caller.key_id))
    speech = await start_speaking(state, listener, body.input, options)
    container_format, content_type = _answer_format(body, request.headers.get("accept", ""))
    headers = pcm_headers(body.sample_rate) if container_format == "pcm" else {}
    if not body.is_streamed:
        file = await collect_file(state, listener, speech, container_format, body.sample_rate)
        headers |= provenance_headers(file.provenance) | {"Content-Length": str(len(file.data))}
        return SpeechResponse(file.slices(), media_type=content_type, headers=headers)
    headers |= provenance_headers(speech.provenance(is_complete=False))
    encoder = stream_encoder(container_format, body.sample_rate, listener.origin.caller.owner)
    match body.stream_format:
        case "sse":
            parts, content_type = as_server_sent_events(speech, encoder), "text/event-stream"
        case "ndjson":
            parts, content_type = as_json_lines(speech, encoder), "application/x-ndjson"
        case "audio":
            parts = encoder.encoded(speech.pcm())
    return SpeechResponse(parts, media_type=content_type, headers=headers)


def pcm_headers(sample_rate_hz: int) -> dict[str, str]:
    """What a client must know to play samples that have no header of their own."""
    return {"X-Sample-Rate": str(sample_rate_hz), "X-Channels": "1"}


def _answer_format(body: SpeechRequest, accept: str) -> tuple[ContainerFormat, str]:
    """The format of the audio, and its Content-Type."""
    if body.response_format is None and _L16 in accept.lower():
        # Little-endian, unlike RFC 2586: SimpliSmart's clients expect it.
        return "pcm", f"audio/L16;rate={body.sample_rate};channels=1"
    container_format = body.response_format or "mp3"
    return container_format, CONTENT_TYPES[container_format]


async def as_server_sent_events(
    speech: Speech, encoder: AnswerEncoder[ContainerEncoder]
) -> AsyncGenerator[str, None]:
    """OpenAI's `stream_format: sse`; without words, which OpenAI's clients do not understand."""
    async with aclosing(_objects(speech, encoder)) as objects:
        async for fields in objects:
            if fields["type"] != _WORDS:
                yield f"data: {json.dumps(fields)}\n\n"


async def as_json_lines(
    speech: Speech, encoder: AnswerEncoder[ContainerEncoder]
) -> AsyncGenerator[str, None]:
    """One object in each line (NDJSON)."""
    async with aclosing(_objects(speech, encoder)) as objects:
        async for fields in objects:
            yield json.dumps(fields) + "\n"


async def _objects(
    speech: Speech, encoder: AnswerEncoder[ContainerEncoder]
) -> AsyncGenerator[dict[str, Any], None]:
    try:
        async with aclosing(speech.events()) as events:
            async for event in events:
                match event:
                    case ContextWords(words):
                        yield {"type": _WORDS, **WordList.of(words).model_dump()}
                    case AudioChunk(_, pcm):
                        if data := await encoder.push(pcm):
                            yield _delta(data)
        if data := await encoder.finish():
            yield _delta(data)
    except VoiceAgentError as error:
        yield {"type": "error", "error": error_fields(error)}
        return
    yield {
        "type": "speech.audio.done",
        "audio_ms": round(1000 * speech.samples / SAMPLE_RATE_HZ),
        "provenance": speech.provenance(is_complete=True).model_dump(),
    }


def error_fields(error: VoiceAgentError) -> dict[str, Any]:
    """An error within an answer whose status has been sent."""
    fields = {"code": error.code.value, "message": error.message, "retryable": error.is_retryable}
    return fields if error.spoken_chars is None else fields | {"spoken_chars": error.spoken_chars}


def _delta(data: bytes) -> dict[str, str]:
    return {"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()}
