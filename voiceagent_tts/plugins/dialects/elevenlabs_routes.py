"""ElevenLabs' HTTP routes, and keys in the first message of its sockets.

The routes are those that ElevenLabs' stock clients use; errors have their form, too. They are also
there under `/livekit`, where times of characters count from the beginning of a context, as the
ElevenLabs plugin of LiveKit reads them.
"""

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import ValidationError
from starlette.types import Message

from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk
from voiceagent_tts.errors import OverloadedError, VoiceAgentError
from voiceagent_tts.plugins.dialects.character_alignment import CharacterAlignment, in_seconds
from voiceagent_tts.plugins.dialects.elevenlabs import error_name
from voiceagent_tts.plugins.dialects.elevenlabs_messages import (
    Credentials,
    OutputFormat,
    TextRequest,
    voice_name,
)
from voiceagent_tts.plugins.speech.containers import CONTENT_TYPES, ContainerEncoder
from voiceagent_tts.plugins.speech.encoding import AnswerEncoder, sample_encoder, stream_encoder
from voiceagent_tts.plugins.speech.speaking import SpeechResponse, provenance_headers, speak_for
from voiceagent_tts.protocol.messages import WordsMessage
from voiceagent_tts.seam.commands import SpeechOptions
from voiceagent_tts.seam.events import VoiceDetails
from voiceagent_tts.server.auth import caller_of
from voiceagent_tts.server.callers import network_of
from voiceagent_tts.server.state import ServerState
from voiceagent_tts.synthesizer.events import ContextWords
from voiceagent_tts.synthesizer.options import ContextOptions

LIVEKIT = "/livekit"
_PATHS = ("/v1/text-to-speech", "/v1/voices")
_DEFAULT_FORMAT = "mp3_44100_128"
_FIRST_MESSAGE_S = 5.0
"""Time in which a socket without a key in its headers has to send one."""
MAX_WAITING = 128
"""Maximum number of sockets that are open without a key."""
MAX_WAITING_PER_ADDRESS = 16
"""Maximum number of them from one address, so that one client cannot shut out the others."""

router = APIRouter(tags=["elevenlabs"])


def is_route(path: str) -> bool:
    """Whether a path is one of ElevenLabs', whose errors have its form."""
    return path.removeprefix(LIVEKIT).startswith(_PATHS)


def error_body(error: VoiceAgentError) -> dict[str, Any]:
    """The body of an HTTP error."""
    return {"detail": {"status": error_name(error.code), "message": error.message}}


# HTTP.


@router.get("/v1/voices", response_model=dict[str, Any])
async def list_voices(request: Request) -> Response:
    """List the voices, the default first, as ElevenLabs' API does."""
    from voiceagent_tts.server.voice_lists import lists_of  # here: few clients ask for it

    return await lists_of(request.app).answer(_voices, request)


def _voices(state: ServerState, key_id: str | None) -> dict[str, Any]:
    from voiceagent_tts.server.voice_lists import listed  # here: few clients ask for it

    voices = listed(state.synthesizer.voices.seen_by(key_id))
    return {"voices": [_shown(voice.details) for voice in voices]}


def _shown(voice: VoiceDetails) -> dict[str, Any]:
    labels = {"language": voice.language, "gender": voice.gender}
    return {
        "voice_id": voice.name,
        "name": voice.name,
        "category": "cloned" if voice.kind == "clone" else "premade",
        "labels": {name: value for name, value in labels.items() if value is not None},
    }


@router.post("/v1/text-to-speech/{voice_id}", response_class=SpeechResponse)
@router.post("/v1/text-to-speech/{voice_id}/stream", response_class=SpeechResponse)
async def speak_as_elevenlabs(
    request: Request, voice_id: str, body: TextRequest, output_format: str = _DEFAULT_FORMAT
) -> SpeechResponse:
    """Speak `text` and stream the audio in `output_format`, as ElevenLabs' API does."""
    output = OutputFormat.parse(output_format)
    speech = await speak_for(request, body.text, _options(request, voice_id, body))
    media_type = "audio/pcm" if output.container is None else CONTENT_TYPES[output.container]
    audio = _encoder(output, request).encoded(speech.pcm())
    headers = provenance_headers(speech.provenance(is_complete=False))
    return SpeechResponse(audio, media_type=media_type, headers=headers)


@router.post("/v1/text-to-speech/{voice_id}/stream/with-timestamps", response_class=SpeechResponse)
async def speak_with_timestamps(
    request: Request, voice_id: str, body: TextRequest, output_format: str = _DEFAULT_FORMAT
) -> SpeechResponse:
    """Speak `text` and stream audio and times of characters, one JSON object in each line."""
    output = OutputFormat.parse(output_format)
    options = _options(request, voice_id, body, wants_words=True)
    speech = await speak_for(request, body.text, options)
    lines = _lines(speech.events(), body.text, _encoder(output, request))
    headers = provenance_headers(speech.provenance(is_complete=False))
    return SpeechResponse(lines, media_type="application/json", headers=headers)


def _options(
    request: Request, voice_id: str, body: TextRequest, *, wants_words: bool = False
) -> ContextOptions:
    state: ServerState = request.app.state.server
    book = state.synthesizer.voices.seen_by(caller_of(request.scope).key_id)
    return ContextOptions(
        voice=voice_name(voice_id, book),
        language=body.language_code,
        speech=SpeechOptions(speed=body.speed, seed=body.seed),
        max_lead_s=0,
        text_feeding="segment",
        wants_words=wants_words,
    )


def _encoder(
    output: OutputFormat, request: Request
) -> AnswerEncoder[ContainerEncoder] | AnswerEncoder[OutputStream]:
    if output.container is None:
        return sample_encoder(output.encoding, output.sample_rate_hz)
    owner = caller_of(request.scope).owner
    return stream_encoder(output.container, output.sample_rate_hz, owner)


async def _lines(
    events: AsyncGenerator[AudioChunk | ContextWords, None],
    text: str,
    encoder: AnswerEncoder[ContainerEncoder] | AnswerEncoder[OutputStream],
) -> AsyncGenerator[str, None]:
    alignment = CharacterAlignment(counts_from_context=True)
    alignment.add_text(text)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, ContextWords):
                alignment.add_words(WordsMessage.of(event.words, context_id="request"))
                if alignment.is_full and (line := _line(b"", alignment.take())):
                    yield line
                continue
            characters = alignment.take(event.end_sample * 1000 // SAMPLE_RATE_HZ + 1)
            if line := _line(await encoder.push(event.pcm), characters):
                yield line
    if line := _line(await encoder.finish(), alignment.take()):
        yield line


def _line(data: bytes, characters: dict[str, Any] | None) -> str | None:
    if not data and characters is None:
        return None
    times = None if characters is None else in_seconds(characters)
    audio = base64.b64encode(data).decode()
    fields = {"audio_base64": audio, "alignment": times, "normalized_alignment": times}
    return json.dumps(fields) + "\n"


# Sockets.


class KeyWaiters:
    """The sockets that are open without a key, of which there are a number at most."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Timeout, str] = {}
        """What ends the wait of each, and the network of its client; the oldest first."""

    async def await_key(self, websocket: WebSocket) -> tuple[WebSocket, str | None]:
        """As `_await_key`; one beyond `MAX_WAITING` ends the wait of another one.

        Raises:
            OverloadedError: too many sockets of this address wait already; this one was not
                accepted.
        """
        client = websocket.client
        address = "unknown" if client is None else network_of(client.host)
        if Counter(self._waiting.values())[address] >= MAX_WAITING_PER_ADDRESS:
            raise OverloadedError(
                f"{MAX_WAITING_PER_ADDRESS} sockets of this address have not sent their key yet; "
                "send it as the header xi-api-key",
                retry_after_ms=1000,
            )
        if len(self._waiting) >= MAX_WAITING:
            self._end_one()
        wait = asyncio.timeout(_FIRST_MESSAGE_S)
        self._waiting[wait] = address
        try:
            return await _await_key(websocket, wait)
        finally:
            self._waiting.pop(wait, None)

    def _end_one(self) -> None:
        """End the oldest wait of the network with the most: strangers shut out themselves."""
        (most, _) = Counter(self._waiting.values()).most_common(1)[0]
        wait = next(wait for wait, network in self._waiting.items() if network == most)
        del self._waiting[wait]
        with contextlib.suppress(RuntimeError):  # it ends just now
            wait.reschedule(asyncio.get_running_loop().time())


async def _await_key(websocket: WebSocket, wait: asyncio.Timeout) -> tuple[WebSocket, str | None]:
    """Accept a socket without a key in its headers, and read the key in its first message.

    Returns:
        The socket as if it were new, which receives its first message again and turns a refusal
        into an error message; and the key, None if the message has none.
    """
    first: Message = {"type": "websocket.disconnect", "code": 1008}
    key: str | None = None
    try:
        async with wait:
            await websocket.accept()
            first = await websocket.receive()
        key = Credentials.model_validate_json(first.get("text") or "").xi_api_key
    except (TimeoutError, ValidationError):
        pass  # the check of the key answers
    accepted = _AcceptedSocket(websocket, first)
    return WebSocket(websocket.scope, accepted.receive, accepted.send), key


class _AcceptedSocket:
    """An accepted socket behind the interface of one that is not, for those who accept sockets."""

    def __init__(self, websocket: WebSocket, first: Message) -> None:
        self._websocket = websocket
        self._unread: list[Message] = [{"type": "websocket.connect"}, first]

    async def receive(self) -> Message:
        """Return the next message of the client."""
        return self._unread.pop(0) if self._unread else await self._websocket.receive()

    async def send(self, message: Message) -> None:
        """Send a message of the server; refusals become messages."""
        match message["type"]:
            case "websocket.accept" | "websocket.http.response.start":
                return
            case "websocket.http.response.body":
                await self._refuse(json.loads(message["body"])["detail"])
            case _:
                await self._websocket.send(message)

    async def _refuse(self, detail: dict[str, str]) -> None:
        error = {"message": detail["message"], "error": detail["status"], "code": 1008}
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client may have left
            await self._websocket.send_text(json.dumps(error))
            await self._websocket.close(1008, detail["status"])
