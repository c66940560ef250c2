"""Cartesia's dialect (`/tts/websocket`): its clients work with this server's URL.

A request names a context, and carries a piece of its transcript and the options of the context; the
options of the first request count. `continue` says whether more text follows. Audio is base64 in
JSON; word times are seconds on the context's clock. This module knows no I/O, no clock and no
engine.

Source: the types of Cartesia's Python package 4.2, and the messages that the Cartesia services of
LiveKit Agents 1.8 and Pipecat 1.14 send and read.
"""

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from voiceagent_tts.core import Encoding
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.plugins.dialects.shared import DialectModel, known_ends_ms
from voiceagent_tts.plugins.speech.encoding import silent_reply
from voiceagent_tts.protocol.messages import (
    AudioBase64Message,
    AudioFormat,
    AudioMessage,
    ContextCancel,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextText,
    DoneMessage,
    ErrorMessage,
    FlushedMessage,
    Name,
    SampleRate,
    ServerMessage,
    Speed,
    WordsMessage,
    context_id_of,
)
from voiceagent_tts.protocol.refusals import refusal_of
from voiceagent_tts.protocol.server_connection import Command, Dialect, WireMessages, refuse_if_big

_LIBRARY_VOICE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
"""UUID: the name of a voice in Cartesia's own library."""

_MAX_BUFFER_DELAY_MS = 3000
_PARTIAL, _COMPLETE = 206, 200


class VoiceSpecifier(DialectModel):
    """The voice; without an id the server's first one."""

    mode: Literal["id"] = "id"
    id: Name | None = None

    @property
    def name(self) -> str | None:
        """Name of the voice on this server; None for a voice of Cartesia's library."""
        return None if self.id is None or _LIBRARY_VOICE.fullmatch(self.id) else self.id


class OutputFormat(DialectModel):
    """Encoding and sample rate of the audio."""

    container: Literal["raw"]
    encoding: Encoding
    sample_rate: SampleRate


class GenerationConfig(DialectModel):
    """How to speak; volume and emotion are ignored."""

    speed: Speed | None = None


class BytesRequest(DialectModel):
    """A text and how to speak it: the body of `POST /tts/bytes`."""

    transcript: str
    voice: VoiceSpecifier = VoiceSpecifier()
    output_format: OutputFormat
    language: Name | None = None
    generation_config: GenerationConfig | None = None

    @property
    def speed(self) -> float:
        """Speed of speech; 1.0 is normal."""
        config = self.generation_config
        return 1.0 if config is None or config.speed is None else config.speed


class GenerationRequest(BytesRequest):
    """A piece of a context's transcript, and the context's options."""

    context_id: Name
    is_continued: bool | None = Field(default=None, alias="continue")
    flush: bool | None = None
    add_timestamps: bool | None = None
    max_buffer_delay_ms: Annotated[int, Field(ge=0, le=5000)] | None = None

    def to_open(self) -> ContextOpen:
        """The message that opens this request's context."""
        options: dict[str, Any] = {}
        if self.max_buffer_delay_ms is not None:
            options["max_buffer_delay_ms"] = min(self.max_buffer_delay_ms, _MAX_BUFFER_DELAY_MS)
        return ContextOpen(
            context_id=self.context_id,
            voice=self.voice.name,
            language=self.language,
            speed=self.speed,
            audio=AudioFormat(
                encoding=self.output_format.encoding,
                sample_rate=self.output_format.sample_rate,
                transport="base64",
            ),
            timestamps="word" if self.add_timestamps else "none",
            markup=True,
            **options,
        )


class CancelRequest(DialectModel):
    """Cancel a context."""

    context_id: Name
    cancel: Literal[True]


def _kind(fields: Any) -> str:
    is_cancel = isinstance(fields, dict) and fields.get("cancel") not in (None, False)
    return "cancel" if is_cancel else "request"


_REQUEST: TypeAdapter[GenerationRequest | CancelRequest] = TypeAdapter(
    Annotated[
        Annotated[GenerationRequest, Tag("request")] | Annotated[CancelRequest, Tag("cancel")],
        Discriminator(_kind),
    ]
)


@dataclass(slots=True)
class _Context:
    audio: AudioFormat
    has_whole_pieces: bool
    """Whether each transcript is a complete text, which must not wait for the next one."""
    is_blank: bool = True
    has_audio: bool = False
    flushes_asked: int = 0
    flushes_done: int = 0

    @property
    def owes_audio(self) -> bool:
        """Whether text was received, but no audio was sent."""
        return not (self.is_blank or self.has_audio)


class Cartesia(Dialect):
    """Translates the messages of one Cartesia socket."""

    def __init__(self) -> None:
        self._contexts: dict[str, _Context] = {}

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        request = _parse(data)
        context_id = request.context_id
        refuse_if_big(data, max_bytes, "request", context_id)
        if isinstance(request, CancelRequest):
            # A context that has ended, or never was open, needs no cancel.
            is_open = context_id in self._contexts
            return [ContextCancel(context_id=context_id)] if is_open else []
        commands: list[Command] = []
        if context_id not in self._contexts:
            message = request.to_open()
            is_whole = message.max_buffer_delay_ms == 0
            self._contexts[context_id] = _Context(message.audio, is_whole)
            commands.append(message)
        return commands + self._speak(request, self._contexts[context_id])

    def _speak(self, request: GenerationRequest, context: _Context) -> list[Command]:
        context_id, text = request.context_id, request.transcript
        context.is_blank = context.is_blank and not text.strip()
        if context.has_whole_pieces and text and not text[-1].isspace():
            text += " "  # Pipecat sends sentences without the white space between them
        commands: list[Command] = []
        if text:
            commands.append(ContextText(context_id=context_id, text=text))
        if request.flush:
            context.flushes_asked += 1
            commands.append(ContextFlush(context_id=context_id, flush_id=context.flushes_asked))
        if not request.is_continued:
            commands.append(ContextEnd(context_id=context_id))
        return commands

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """See `Dialect.write`."""
        match message:
            case AudioBase64Message():
                self._contexts[message.context_id].has_audio = True
                return [self._event("chunk", message.context_id, data=message.data, step_time=0.0)]
            case WordsMessage():
                return [self._timestamps(message)]
            case FlushedMessage():
                return [self._flush_done(message)]
            case ErrorMessage():
                return [self._error(message)]
            case DoneMessage():
                return self._done(message)
            case _:
                return []  # Cartesia's protocol has no such message

    def _timestamps(self, message: WordsMessage) -> str:
        times = {
            "words": message.words,
            "start": [ms / 1000 for ms in message.start_ms],
            "end": [ms / 1000 for ms in known_ends_ms(message)],
        }
        return self._event("timestamps", message.context_id, word_timestamps=times)

    def _flush_done(self, message: FlushedMessage) -> str:
        event = self._event("flush_done", message.context_id, flush_done=True)
        self._contexts[message.context_id].flushes_done = message.flush_id
        return event

    def _event(self, kind: str, context_id: str, **fields: Any) -> str:
        """An event of an open context, with the number of the next flush."""
        flush_id = self._contexts[context_id].flushes_done + 1
        return _encode(kind, context_id, _PARTIAL, done=False, flush_id=flush_id, **fields)

    def _error(self, message: ErrorMessage) -> str:
        if message.code == ErrorCode.CONTEXT_EXISTS and message.context_id is not None:
            del self._contexts[message.context_id]  # the id of a context that has ended
        # Not `done: true`: LiveKit's plugin would treat it as the end of a successful turn. If the
        # context has ended, its `done` follows. Pipecat's service needs the context's id.
        return _encode(
            "error",
            message.context_id,
            message.status,
            done=False,
            error_code=message.code,
            title=message.code.replace("_", " ").capitalize(),
            message=message.message,
        )

    def _done(self, message: DoneMessage) -> WireMessages:
        context_id = message.context_id
        messages: WireMessages = [_encode("done", context_id, _COMPLETE, done=True)]
        context = self._contexts.get(context_id)
        if context is not None and context.owes_audio and message.reason == "complete":
            audio = context.audio
            data = b64encode(silent_reply(audio.encoding, audio.sample_rate)).decode()
            messages.insert(0, self._event("chunk", context_id, data=data, step_time=0.0))
        self._contexts.pop(context_id, None)
        return messages


def _parse(data: str) -> GenerationRequest | CancelRequest:
    try:
        return _REQUEST.validate_json(data)
    except ValidationError as error:
        refusal = refusal_of(error)
        if refusal.code is not ErrorCode.INVALID_JSON:
            fields = from_json(data)
            refusal.context_id = context_id_of(fields)
            refusal.refuses_open = _kind(fields) == "request"
        raise refusal from None  # the cause holds the client's text


def _encode(kind: str, context_id: str | None, status: int, **fields: Any) -> str:
    event = {"type": kind, "context_id": context_id, "status_code": status, **fields}
    return to_json(event).decode()
