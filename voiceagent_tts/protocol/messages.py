"""The messages of `tts.v1`: their fields and their limits.

Every WebSocket text message is one JSON object with a `type`; a WebSocket binary message is audio.
Times are whole milliseconds on the context's clock, which is zero at its first sample; character
offsets count code points in the concatenation of the context's text messages. The order of messages
is checked in `server_connection` and `client_connection`.
"""

import math
import struct
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError, from_json, to_json

from voiceagent_tts.core import (
    ENCODED_SAMPLE_BYTES,
    SAMPLE_RATE_HZ,
    TRACEPARENT,
    Cut,
    CutBasis,
    DoneReason,
    Encoding,
    WordTimestamp,
    samples_to_ms,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, VoiceAgentError
from voiceagent_tts.protocol.refusals import refusal_of

SUBPROTOCOL = "tts.v1"
PROTOCOL_VERSION = "1.2"
"""A new minor version only adds messages and fields, which an older peer ignores."""

MAX_MESSAGE_BYTES = 65_536
MAX_ID_CHARS = 128
MAX_INSTRUCT_CHARS = 2_000
MAX_INITIAL_FRAMES = 16
MAX_METADATA_BYTES = 1_024
_TRACEPARENT_BYTES = len(f',"{TRACEPARENT}":""') + 55
_MAX_INT = 2**53 - 1  # the largest integer that every JSON reader keeps exactly


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("printable", "Input should have printable characters only")
    return value


def _plain_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    # A program that begins to trace may send all that it sent before.
    limit = MAX_METADATA_BYTES + (_TRACEPARENT_BYTES if TRACEPARENT in value else 0)
    if len(data := to_json(value)) > limit:
        raise PydanticCustomError("size", "Input should be at most {limit} bytes", {"limit": limit})
    if data != to_json(value, inf_nan_mode="null"):  # NaN, or 1e999: no log could repeat it
        raise PydanticCustomError("finite_number", "Input should have finite numbers only")
    return value


def _lexicon(value: object) -> object:
    from voiceagent_tts.lexicon import check_entries  # here: few clients send one

    try:
        check_entries(value)
    except InvalidRequestError as error:
        # One error for the field: the path of an error would show a written form.
        reason = error.message.removeprefix("lexicon: ")
        raise PydanticCustomError("lexicon", "{reason}", {"reason": reason}) from None
    return value


Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS), AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, le=_MAX_INT)]
LexiconEntries = Annotated[dict[str, JsonValue], BeforeValidator(_lexicon)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_plain_json)]
Instruct = Annotated[
    Annotated[str, Field(max_length=MAX_INSTRUCT_CHARS)] | None,
    Field(validation_alias=AliasChoices("instruct", "instructions")),
]
"""How to speak, in words, for voices that follow them."""
Speed = Annotated[float, Field(ge=0.25, le=4.0, allow_inf_nan=False)]
"""Speaking rate, pitch unchanged; 1 is the voice's own. The range is that of OpenAI's API."""
SampleRate = Literal[8000, 16000, 22050, 24000, 32000, 44100, 48000]
"""Sample rate of the audio that a client receives, in Hz; engines generate 24,000 Hz."""


class WireModel(BaseModel):
    """Base of every message: checked strictly, and its errors never show its contents."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,  # true is no integer, "1" is no number
        extra="ignore",
        allow_inf_nan=False,
        hide_input_in_errors=True,  # the input is text to be spoken
    )

    def encode(self) -> str:
        """JSON of this message, with every field."""
        return self.model_dump_json()


class _ClientMessage(WireModel):
    def encode(self) -> str:
        """JSON of this message; fields that are None are left out."""
        return self.model_dump_json(exclude_none=True)


# Client to server.


class AudioFormat(WireModel):
    """How a context's audio is delivered."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: SampleRate = SAMPLE_RATE_HZ
    transport: Literal["binary", "base64"] = "binary"

    @property
    def bytes_per_sample(self) -> int:
        """Size of one sample in bytes; audio is mono."""
        return ENCODED_SAMPLE_BYTES[self.encoding]

    def samples_to_ms(self, samples: int) -> int:
        """Whole milliseconds of `samples` at this format's rate, rounded down."""
        return samples * 1000 // self.sample_rate


class SpeechFields(BaseModel):
    """Options that socket contexts and HTTP requests share."""

    speed: Speed = 1.0
    seed: Count | None = None
    leading_silence: bool = Field(
        default=False, description="Whether the silence before the first sound is sent."
    )
    lexicon: LexiconEntries | None = Field(
        default=None,
        description="How written words are said: a respelling, IPA between slashes, or an object "
        "with `say`, `ipa` or both.",
    )
    markup: bool = Field(
        default=False,
        description='Whether tags in the text have an effect: `<break time="300ms"/>`.',
    )
    cache: bool = Field(
        default=True, description="Whether phrases that were spoken before may come from the cache."
    )
    strict_language: bool = Field(
        default=False,
        description="Whether a text in a language that the voice does not speak is refused "
        "(`language_unavailable`). If false, it is read by the rules of another language.",
    )


class ContextDefaults(WireModel, SpeechFields):
    """Options of a context, and defaults of a session; None is the server's choice."""

    voice: Name | None = None
    language: Name | None = None
    """Name, code or region code of the language; None to detect it for each segment."""
    instruct: Instruct = None
    audio: AudioFormat = AudioFormat()
    timestamps: Literal["word", "none"] = "word"
    max_buffer_delay_ms: Annotated[int, Field(ge=0, le=3000)] = 500
    """Maximum time that text waits for the rest of its sentence, in milliseconds."""
    max_lead_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    """Maximum lead of audio over playback, in seconds; 0 sends audio as fast as it is generated."""
    text_feeding: Literal["token", "segment"] | None = None
    initial_frames: Annotated[int, Field(ge=1, le=MAX_INITIAL_FRAMES)] | None = None
    """Number of codec frames in each decode window until there is sound."""
    priority: Literal["live", "batch"] = "live"
    """A `batch` context has no listener yet, and never delays a `live` one."""
    idle_s: Annotated[float, Field(gt=0)] | None = None
    """Time without text after which the context ends, in seconds, if the server's is longer."""


class ContextOpen(ContextDefaults, _ClientMessage):
    """Open a context."""

    type: Literal["context.open"] = "context.open"
    context_id: Name
    metadata: Metadata | None = None


class ContextText(_ClientMessage):
    """Append text, verbatim; opens an unknown context with the session's defaults."""

    type: Literal["text"] = "text"
    context_id: Name
    text: str


class ContextFlush(_ClientMessage):
    """Speak the text received so far; the context stays open. Ids rise within a context."""

    type: Literal["flush"] = "flush"
    context_id: Name
    flush_id: Count


class ContextEnd(_ClientMessage):
    """End the text of the context; the rest is spoken."""

    type: Literal["end"] = "end"
    context_id: Name


class ContextCancel(_ClientMessage):
    """Stop now; `played_ms` counts the played audio of this context, without underruns."""

    type: Literal["cancel"] = "cancel"
    context_id: Name
    played_ms: Count | None = None


class ContextCut(_ClientMessage):
    """Ask which text had been heard after `played_ms` of audio; changes nothing."""

    type: Literal["cut"] = "cut"
    context_id: Name
    played_ms: Count


class SessionUpdate(ContextDefaults, _ClientMessage):
    """Replace defaults for the contexts that `text` opens."""

    type: Literal["session.update"] = "session.update"


class Prepare(_ClientMessage):
    """Announce a context with this voice, so that the server loads ahead what would delay it."""

    type: Literal["prepare"] = "prepare"
    voice: Name | None = None
    language: Name | None = None
    instruct: Instruct = None


class Ping(_ClientMessage):
    """Ask for a `PongMessage` with this `t`."""

    type: Literal["ping"] = "ping"
    t: Annotated[int, Field(ge=-_MAX_INT, le=_MAX_INT)] = 0


class Close(_ClientMessage):
    """Close the socket with code 1000; its contexts are cancelled."""

    type: Literal["close"] = "close"


ClientMessage = (
    ContextOpen
    | ContextText
    | ContextFlush
    | ContextEnd
    | ContextCancel
    | ContextCut
    | SessionUpdate
    | Prepare
    | Ping
    | Close
)


# Server to client.


class SessionLimits(WireModel):
    """What this server allows; every client receives it in `ready`."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_contexts: int = 64
    """Maximum number of open contexts on one socket; cancelled ones do not count."""
    max_text_chars: int
    """Maximum number of code points of one context that wait to be spoken."""
    context_idle_s: float
    """Maximum time that a context waits for text, in seconds."""
    max_audio_s: float
    """Maximum audio of one context, in seconds."""
    max_lead_s: float
    """Default of the maximum lead of audio over playback, in seconds."""


class ReadyMessage(WireModel):
    """First message of every socket: the session, the version and the limits."""

    type: Literal["ready"] = "ready"
    session_id: str
    protocol: str = PROTOCOL_VERSION
    model: str
    sample_rate: int = SAMPLE_RATE_HZ
    has_word_times: bool = True
    """Whether engines or aligners find the times of words; otherwise all of them are estimates."""
    limits: SessionLimits


class ContextOpened(WireModel):
    """The context has a row in the engine.

    `handle` names the context in binary messages.
    """

    type: Literal["context.opened"] = "context.opened"
    context_id: str
    handle: Annotated[int, Field(ge=0, le=0xFFFF)]
    voice: str
    language: str | None
    seed: int | None
    queue_ms: int


class WordList(WireModel):
    """Words and their times as parallel lists; an `end_ms` is null while it is unknown."""

    words: list[str]
    start_ms: list[int]
    end_ms: list[int | None]
    char_start: list[int]
    char_end: list[int]
    exact: list[bool]
    """False for a time that is an estimate: its confidence is below 0.95."""
    confidence: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=lambda fields: [float(exact) for exact in fields.get("exact", [])]
    )
    """Probability that each word begins within 200 ms of its start; version 1.0 has none."""

    @classmethod
    def of(cls, timestamps: Iterable[WordTimestamp], **fields: str) -> Self:
        """Build a message from `timestamps`; `fields` are its other fields."""
        given: dict[str, Any] = {**_columns(tuple(timestamps)), **fields}
        return cls.model_construct(None, **given)  # what is built here is valid


def _columns(rows: tuple[WordTimestamp, ...]) -> dict[str, Any]:
    return {
        "words": [row.word.text for row in rows],
        "start_ms": [samples_to_ms(row.start_sample) for row in rows],
        "end_ms": [
            None if row.end_sample is None else samples_to_ms(row.end_sample) for row in rows
        ],
        "char_start": [row.word.char_start for row in rows],
        "char_end": [row.word.char_end for row in rows],
        "exact": [row.is_exact for row in rows],
        # Rounded down, so that both ends of the wire call the same words exact.
        "confidence": [math.floor(row.confidence * 1000) / 1000 for row in rows],
    }


class WordsMessage(WordList):
    """The next words of a context; sent before playback can reach them."""

    type: Literal["words"] = "words"
    context_id: str


class WordsMovedMessage(WordList):
    """Better times of words that were sent by an estimate."""

    type: Literal["words_moved"] = "words_moved"
    context_id: str


class FlushedMessage(WireModel):
    """All audio of the text before the flush has been sent; it ends at `audio_ms`."""

    type: Literal["flushed"] = "flushed"
    context_id: str
    flush_id: int
    audio_ms: int


class WarningMessage(WireModel):
    """Output is degraded; sent once per code and context."""

    type: Literal["warning"] = "warning"
    context_id: str
    code: str
    """One of `core.WarningCode`, or a code of a newer server."""
    message: str
    """A sentence for people: what is degraded, why, and what to do."""


class _CutFields(WireModel):
    context_id: str
    text_spoken: str
    text_remaining: str
    partial: bool
    """Whether the last word spoken was cut before its end."""

    @classmethod
    def of(cls, cut: Cut, **fields: Any) -> Self:
        """Build a message from `cut`; `fields` are its other fields."""
        spoken, remaining = cut.text_spoken, cut.text_remaining
        return cls(text_spoken=spoken, text_remaining=remaining, partial=cut.is_partial, **fields)


class CancelledMessage(_CutFields):
    """The context has stopped; only its `done` follows."""

    type: Literal["cancelled"] = "cancelled"
    audio_sent_ms: int
    basis: CutBasis


class CutMessage(_CutFields):
    """Answer to `cut`."""

    type: Literal["cut"] = "cut"


class ProvenanceFields(BaseModel):
    """Where the audio of a context comes from."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sha256: str | None
    """Hex digest of all audio that was sent, in the client's encoding and in order."""
    model: str
    time: str
    """When the context ended, as ISO 8601 in UTC."""
    key_id: str | None
    """Id of the key of the audio's watermark; None for audio without one."""


class DoneMessage(WireModel):
    """Last message of a context; every context has exactly one."""

    type: Literal["done"] = "done"
    context_id: str
    reason: DoneReason
    audio_ms: int
    chars: int
    """Number of code points of text that the context received."""
    ttfa_ms: int | None
    """Time from the first text to the first audio message, in milliseconds; None without audio."""
    gen_ms: int | None
    """Time from the first text to the end of the context, in milliseconds, if known."""
    words_final: WordList | None = None
    """All words again, with refined times, for subtitles."""
    provenance: ProvenanceFields | None = None
    """Where the audio comes from; None for a context without audio."""


class ErrorMessage(WireModel):
    """Something was refused or failed; the socket lives on, and a context ends only by `done`."""

    type: Literal["error"] = "error"
    code: str
    message: str
    context_id: str | None = None
    retryable: bool
    retry_after_ms: int | None = None
    status: int
    spoken_chars: int | None = None
    """Of `text_lost`: the characters that were spoken; words after them were not, though sent."""
    dropped: tuple[Count, Count] | None = None
    """Of text that was refused: start and end in the context's text, which goes on without it."""

    @classmethod
    def of(cls, error: VoiceAgentError, context_id: str | None) -> Self:
        """The message that reports `error`."""
        return cls(
            code=error.code,
            message=error.message,
            context_id=context_id,
            retryable=error.is_retryable,
            retry_after_ms=error.retry_after_ms,
            status=error.status,
            spoken_chars=error.spoken_chars,
            dropped=error.dropped,
        )


class DrainingMessage(WireModel):
    """The server opens no more contexts; it closes when all are done, or at the deadline."""

    type: Literal["draining"] = "draining"
    deadline_ms: int


class PongMessage(WireModel):
    """Answer to `ping`."""

    type: Literal["pong"] = "pong"
    t: int


class AudioBase64Message(WireModel):
    """Audio for clients that cannot read binary messages: 35 % larger, 100 times the work."""

    type: Literal["audio"] = "audio"
    context_id: str
    seq: int
    sample_offset: int
    data: str

    @classmethod
    def of(cls, context_id: str, audio: "AudioMessage") -> Self:
        """Base64 form of `audio`, with the context's id instead of its handle."""
        data = b64encode(audio.pcm).decode("ascii")
        return cls(
            context_id=context_id, seq=audio.seq, sample_offset=audio.sample_offset, data=data
        )


ServerMessage = (
    ReadyMessage
    | ContextOpened
    | WordsMessage
    | WordsMovedMessage
    | FlushedMessage
    | WarningMessage
    | CancelledMessage
    | CutMessage
    | DoneMessage
    | ErrorMessage
    | DrainingMessage
    | PongMessage
    | AudioBase64Message
)

AUDIO_KIND = 1
"""First byte of a binary message with audio; clients ignore other kinds."""
AUDIO_HEADER = struct.Struct("<BBHIQ")
"""Fields before the samples of such a message, in the order of `AudioMessage`."""


@dataclass(frozen=True, slots=True)
class AudioMessage:
    """Audio in binary form: a header of 16 bytes and at most 4,096 bytes of PCM.

    `sample_offset` counts samples at the context's output rate. The header is little-endian:
    kind (u8), zero (u8), handle (u16), seq (u32), sample_offset (u64).
    """

    handle: int
    seq: int
    sample_offset: int
    pcm: bytes

    def encode(self) -> bytes:
        """Bytes of this message."""
        header = AUDIO_HEADER.pack(AUDIO_KIND, 0, self.handle, self.seq, self.sample_offset)
        return header + self.pcm


# From JSON to messages.

_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)


def parse_client_message(data: str) -> ClientMessage:
    """Read one text message of a client.

    Raises:
        RefusedMessageError: it is not JSON, not a message, of an unknown type, or a field is wrong.
    """
    try:
        return _CLIENT_MESSAGE.validate_json(data)
    except ValidationError as error:
        refusal = refusal_of(error)
        if refusal.code is not ErrorCode.INVALID_JSON:
            fields = from_json(data)
            refusal.context_id = context_id_of(fields)
            refusal.refuses_open = (
                refusal.context_id is not None and fields.get("type") == "context.open"
            )
        raise refusal from None  # the cause holds the client's text


def context_id_of(message: Any) -> str | None:
    """Id of the context that an invalid message names; None if it cannot be read."""
    if not isinstance(message, dict):
        return None
    context_id = cast("dict[str, Any]", message).get("context_id")
    is_name = isinstance(context_id, str) and 1 <= len(context_id) <= MAX_ID_CHARS
    return context_id if is_name else None
