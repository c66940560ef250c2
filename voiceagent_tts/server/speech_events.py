"""Speech as a stream of JSON objects: server-sent events with OpenAI's names, and JSON lines.

Every object has a `type`. Audio is base64; words and their times come before their audio. An error
is reported as an object, and `speech.audio.done` does not follow.
"""

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from voiceagent_tts.audio.containers import ContainerEncoder
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.protocol.messages import WordList
from voiceagent_tts.server.encoding import AnswerEncoder
from voiceagent_tts.server.speaking import Speech
from voiceagent_tts.synthesizer.events import ContextWords

_WORDS = "speech.audio.words"


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
