"""The client's end of one `tts.v1` socket, without the socket: which messages are legal, and when.

The sending methods check a message and return it for the caller to send. `receive` checks what the
server sends. Both keep a record of each context, from which a client can cut its text without
asking the server. This module does no I/O.
"""

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, Cut, Word, WordTimestamp, ms_to_samples
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
    class_of,
)
from voiceagent_tts.protocol.messages import (
    AUDIO_HEADER,
    AUDIO_KIND,
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    AudioBase64Message,
    AudioFormat,
    AudioMessage,
    CancelledMessage,
    ClientMessage,
    Close,
    ContextCancel,
    ContextCut,
    ContextEnd,
    ContextFlush,
    ContextOpen,
    ContextOpened,
    ContextText,
    CutMessage,
    DoneMessage,
    DrainingMessage,
    ErrorMessage,
    FlushedMessage,
    LexiconEntries,
    Ping,
    PongMessage,
    Prepare,
    ReadyMessage,
    ServerMessage,
    WarningMessage,
    WordList,
    WordsMessage,
    WordsMovedMessage,
)
from voiceagent_tts.protocol.refusals import WireState, context_refusal, refusal_of

CLOSE_CODES: dict[int, str] = {
    1000: "normal: the client asked to close, or all is done",
    1001: "going away: the server has drained",
    1002: "protocol error: the server broke this protocol",
    1008: "policy: the key was revoked, or may not speak any more",
    1009: "too big: a message is far larger than limits.max_message_bytes",
    1011: "internal: the server failed",
    1012: "restart: the server restarts, connect again",
    1013: "overload: try again later",
    4008: "slow consumer: the client does not read its messages",
    4029: "rate: the client kept sending what its limits refuse",
}
"""WebSocket close codes of both sides, with their meaning."""

MAX_RECORDS = 256
"""Maximum number of records of ended contexts that a client keeps; the newest stay."""

_M = TypeVar("_M", bound=BaseModel)
_SERVER_MESSAGE: TypeAdapter[ServerMessage] = TypeAdapter(
    Annotated[ServerMessage, Field(discriminator="type")]
)


class ProtocolError(VoiceAgentError):
    """The server sent what this protocol does not allow; close the socket with 1002."""


def parse_server_message(data: str) -> ServerMessage | None:
    """Read one text message of a server; None for a type that this version does not know.

    Raises:
        ProtocolError: it is not JSON, not a message, or a field is wrong.
    """
    try:
        message = _SERVER_MESSAGE.validate_json(data)
    except ValidationError as error:
        refusal = refusal_of(error)
        if refusal.code is ErrorCode.UNKNOWN_TYPE:
            return None
        raise ProtocolError(f"server message: {refusal.message}") from None
    words = message.words_final if isinstance(message, DoneMessage) else message
    if isinstance(words, WordList):
        _check_parallel(words, message.type)
    return message


def _check_parallel(words: WordList, message_type: str) -> None:
    times = words.start_ms, words.end_ms, words.exact, words.confidence
    if {len(words.words)} != set(map(len, (words.char_start, words.char_end, *times))):
        raise ProtocolError(f"server message: {message_type}: expected lists as long as words")


def parse_audio(data: bytes) -> AudioMessage:
    """Read a binary message of kind `AUDIO_KIND`.

    Raises:
        ProtocolError: the message is shorter than its header, too long, or of another kind.
    """
    pcm_bytes = len(data) - AUDIO_HEADER.size
    if not 0 <= pcm_bytes <= MAX_MESSAGE_PCM_BYTES:
        raise ProtocolError(
            f"binary message: expected 16 to {AUDIO_HEADER.size + MAX_MESSAGE_PCM_BYTES}"
            f" bytes, got {len(data)}"
        )
    kind, _, handle, seq, sample_offset = AUDIO_HEADER.unpack_from(data)
    if kind != AUDIO_KIND:
        raise ProtocolError(f"binary message: expected kind {AUDIO_KIND}, got {kind}")
    return AudioMessage(handle, seq, sample_offset, data[AUDIO_HEADER.size :])


def parse_base64_audio(message: AudioBase64Message) -> bytes:
    """Decode the samples of a text message with audio.

    Raises:
        ProtocolError: its `data` is not base64.
    """
    try:
        return b64decode(message.data, validate=True)
    except ValueError as error:
        raise ProtocolError("audio.data: expected base64") from error


def timestamps_of(message: WordList) -> list[WordTimestamp]:
    """Return the words of a message, with times in samples at 24 kHz."""
    rows = zip(
        message.words,
        message.char_start,
        message.char_end,
        message.start_ms,
        message.end_ms,
        message.confidence,
        strict=True,
    )
    return [
        WordTimestamp(
            Word(text, char_start, char_end),
            ms_to_samples(start_ms),
            None if end_ms is None else ms_to_samples(end_ms),
            confidence,
        )
        for text, char_start, char_end, start_ms, end_ms, confidence in rows
    ]


def cut_of(message: CancelledMessage | CutMessage) -> Cut:
    """Return the spoken and the remaining text that a server has reported."""
    return Cut(message.text_spoken, message.text_remaining, message.partial)


def error_of(message: ErrorMessage) -> VoiceAgentError:
    """Return a server's error as an exception of this package."""
    try:
        code = ErrorCode(message.code)
    except ValueError:  # from a newer server: only `retryable` is known about it
        kind = OverloadedError if message.retryable else InvalidRequestError
        return kind(f"{message.code}: {message.message}", retry_after_ms=message.retry_after_ms)
    return class_of(code)(
        message.message,
        code=code,
        retry_after_ms=message.retry_after_ms,
        spoken_chars=message.spoken_chars,
        dropped=message.dropped,
    )


@dataclass(frozen=True, slots=True)
class ClientAudio:
    """Audio of a context, from either transport."""

    context_id: str
    seq: int  # number of the audio message within its context, from 0
    sample_offset: int  # of the first sample, at the context's output rate
    pcm: bytes


@dataclass(slots=True)
class ContextRecord:
    """What a client sent to and received from one context; enough to cut its text locally."""

    context_id: str
    audio: AudioFormat
    state: WireState = WireState.OPEN
    handle: int | None = None  # in binary messages, from `context.opened`
    text: str = ""
    """The text sent, without what the server has dropped; the offsets of words count in it."""
    lexicon: LexiconEntries | None = None
    has_markup: bool = False  # whether tags in the text have an effect
    words: list[WordTimestamp] = field(default_factory=list[WordTimestamp])
    """The words received, each with its best time."""
    last_start_sample: int = 0  # of the last word as it was sent first
    messages_received: int = 0
    samples_received: int = 0  # of audio, at the output rate
    flushes: int = 0
    done: DoneMessage | None = None
    final_words: list[WordTimestamp] | None = None
    """All words, if the server knew better times of them at the end."""
    spoken_chars: int | None = None
    """Of a context that has lost its text: the characters that were spoken before."""

    @property
    def best_words(self) -> list[WordTimestamp]:
        """The words with the best times known."""
        return self.final_words or self.words

    @property
    def accepts_text(self) -> bool:
        """Whether more text may be sent."""
        return self.state is WireState.OPEN and self.done is None


ClientEvent = (
    ReadyMessage
    | ContextOpened
    | ClientAudio
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
)
"""What `ClientConnection.receive` returns."""

Inbox = Callable[[ClientEvent], None]
"""Receives the events of a context; `DoneMessage`, or the error of a lost socket, is the last."""


class VoiceOptions(TypedDict, total=False):
    """How a context is spoken, as keyword arguments: what a host's user may choose."""

    voice: str | None
    language: str | None
    instruct: str | None
    max_buffer_delay_ms: int
    seed: int | None
    speed: float
    max_lead_s: float | None
    text_feeding: Literal["token", "segment"] | None
    initial_frames: int | None
    leading_silence: bool
    priority: Literal["live", "batch"]
    lexicon: LexiconEntries | None
    markup: bool
    idle_s: float | None
    cache: bool
    strict_language: bool


class OpenOptions(VoiceOptions, total=False):
    """The fields of `ContextDefaults` as keyword arguments."""

    audio: AudioFormat
    timestamps: Literal["word", "none"]


def check_options(**options: Unpack[OpenOptions]) -> None:
    """Check options of a context before there is a connection.

    Raises:
        InvalidRequestError: an option is wrong.
    """
    ClientConnection().open("checked", **options)


class ClientConnection:
    """Builds what the client sends, and checks what the server sends, on one socket.

    Messages may be sent before `ready` has been received.
    """

    def __init__(self) -> None:
        self.ready: ReadyMessage | None = None
        self.is_draining = False
        """Whether the server refuses new contexts on this socket."""
        self._records: dict[str, ContextRecord] = {}
        self._ended: dict[str, None] = {}  # ids of ended contexts, oldest first
        self._handles: dict[int, ContextRecord] = {}

    # Messages to the server.

    def open(
        self,
        context_id: str,
        *,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> str:
        """Open a context; `options` are the fields of `ContextDefaults`.

        Raises:
            InvalidRequestError: an option is wrong, or the id was used before (`context_exists`).
            OverloadedError: the server accepts no more contexts on this socket (`draining`).
        """
        if self.is_draining:
            raise OverloadedError(
                "this socket accepts no more contexts; open another socket",
                code=ErrorCode.DRAINING,
            )
        if context_id in self._records:
            raise context_refusal(ErrorCode.CONTEXT_EXISTS, context_id)
        unknown = options.keys() - OpenOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"open() has no option {', '.join(sorted(unknown))}")
        fields = {"context_id": context_id, "metadata": metadata, **options}
        message = _valid(ContextOpen, fields)
        data = self._encode(message)
        self._records[context_id] = ContextRecord(
            context_id, message.audio, lexicon=message.lexicon, has_markup=message.markup
        )
        return data

    def text(self, context_id: str, text: str) -> str:
        """More text of a context.

        Raises:
            InvalidRequestError: the context accepts no text, or `text` is too long for one message
                or is not valid Unicode.
        """
        record = self._accepting_text(context_id)
        data = self._encode(_valid(ContextText, {"context_id": context_id, "text": text}))
        record.text += text
        return data

    def flush(self, context_id: str) -> str:
        """Speak the text sent so far; `flush_id` numbers the flushes of a context from 1.

        Raises:
            InvalidRequestError: the context accepts no text.
        """
        record = self._accepting_text(context_id)
        record.flushes += 1
        return ContextFlush(context_id=context_id, flush_id=record.flushes).encode()

    def end(self, context_id: str) -> str:
        """No more text will come.

        Raises:
            InvalidRequestError: the context accepts no text.
        """
        self._accepting_text(context_id).state = WireState.TEXT_ENDED
        return ContextEnd(context_id=context_id).encode()

    def cancel(self, context_id: str, played_ms: int | None = None) -> str:
        """Stop a context, even if it may just have ended; only the first `cancel` is answered.

        Raises:
            InvalidRequestError: the context is unknown, or `played_ms` is wrong.
        """
        record = self.record(context_id)
        fields = {"context_id": context_id, "played_ms": played_ms}
        message = _valid(ContextCancel, fields)
        if record.state is not WireState.CANCELLED:
            record.state = WireState.CANCELLING
        return message.encode()

    def cut(self, context_id: str, played_ms: int) -> str:
        """Ask which text had been heard at `played_ms`, also for a context that has ended.

        Raises:
            InvalidRequestError: `played_ms` is wrong.
        """
        fields = {"context_id": context_id, "played_ms": played_ms}
        return _valid(ContextCut, fields).encode()

    def prepare(
        self, *, voice: str | None = None, language: str | None = None, instruct: str | None = None
    ) -> str:
        """Ask the server to load in advance what a context with this voice needs.

        Raises:
            InvalidRequestError: an argument is wrong.
        """
        fields = {"voice": voice, "language": language, "instruct": instruct}
        return self._encode(_valid(Prepare, fields))

    def ping(self, t: int = 0) -> str:
        """Ask for a `pong` with the number `t`."""
        return Ping(t=t).encode()

    def close(self) -> str:
        """Ask the server to close the socket."""
        return Close().encode()

    def record(self, context_id: str) -> ContextRecord:
        """The record of a context; those of the newest 256 ended contexts are kept.

        Raises:
            InvalidRequestError: the context is unknown.
        """
        record = self._records.get(context_id)
        if record is None:
            raise context_refusal(ErrorCode.CONTEXT_NOT_FOUND, context_id)
        return record

    def _accepting_text(self, context_id: str) -> ContextRecord:
        record = self.record(context_id)
        if not record.accepts_text:
            raise context_refusal(ErrorCode.CONTEXT_CLOSED, context_id)
        return record

    def _encode(self, message: ClientMessage) -> str:
        try:
            data = message.encode()
        except (PydanticSerializationError, UnicodeError):
            raise InvalidRequestError(
                f"{message.type}: expected valid Unicode, got a lone surrogate",
                code=ErrorCode.INVALID_PARAM,
            ) from None
        limit = self.ready.limits.max_message_bytes if self.ready else MAX_MESSAGE_BYTES
        if len(data) * 4 > limit and len(data.encode()) > limit:
            raise InvalidRequestError(
                f"{message.type}: expected at most {limit} bytes, got {len(data.encode())}",
                code=ErrorCode.MESSAGE_TOO_BIG,
            )
        return data

    # Messages from the server.

    def receive(self, data: str | bytes) -> ClientEvent | None:
        """Check one message of the server, and update the record of its context.

        Returns:
            The message, or `ClientAudio` for audio; None for a kind of message that this version
            does not know.

        Raises:
            ProtocolError: the server broke the protocol; close the socket with 1002.
            VoiceAgentError: the server speaks another version of the protocol
                (`version_mismatch`).
        """
        if isinstance(data, bytes):
            return self._receive_binary(data)
        message = parse_server_message(data)
        if message is None:
            return None
        if self.ready is None:
            self._check_handshake(message)
        elif isinstance(message, ReadyMessage):
            raise ProtocolError("ready: expected one per socket, got a second")
        return self._receive_message(message)

    def _check_handshake(self, message: ServerMessage) -> None:
        match message:
            case ReadyMessage():
                if message.protocol.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
                    raise VoiceAgentError(
                        f"expected a server of protocol {PROTOCOL_VERSION}, "
                        f"got {message.protocol[:16]}",
                        code=ErrorCode.VERSION_MISMATCH,
                    )
                self.ready = message
            case ErrorMessage():
                pass  # says why the server will not send `ready`
            case _:
                raise ProtocolError(f"expected ready as the first message, got {message.type}")

    def _receive_message(self, message: ServerMessage) -> ClientEvent:
        match message:
            case AudioBase64Message():
                record = self._opened(message.context_id, "audio")
                pcm = parse_base64_audio(message)
                return self._add_audio(record, message.seq, message.sample_offset, pcm)
            case ContextOpened():
                self._set_opened(message)
            case WordsMessage():
                self._add_words(message)
            case WordsMovedMessage():
                self._move_words(message)
            case FlushedMessage() | WarningMessage():
                self._opened(message.context_id, message.type)
            case CancelledMessage():
                self._uncancelled(message.context_id, "cancelled").state = WireState.CANCELLED
            case DoneMessage():
                self._set_done(message)
            case DrainingMessage() | ErrorMessage(code=ErrorCode.DRAINING):
                self.is_draining = True
            case ErrorMessage(spoken_chars=int(char_end)):
                self._lose_text(message.context_id, char_end)
            case ErrorMessage(dropped=(start, end)):
                self._drop_text(message.context_id, start, end)
            case ReadyMessage() | ErrorMessage() | CutMessage() | PongMessage():
                pass
        return message

    def _receive_binary(self, data: bytes) -> ClientAudio | None:
        if data[:1] != bytes([AUDIO_KIND]):
            return None
        message = parse_audio(data)
        record = self._handles.get(message.handle)
        if record is None or record.state is WireState.CANCELLED:
            raise ProtocolError(f"audio: expected an open context, got handle {message.handle}")
        return self._add_audio(record, message.seq, message.sample_offset, message.pcm)

    def _set_opened(self, message: ContextOpened) -> None:
        record = self._uncancelled(message.context_id, "context.opened")
        if record.handle is not None or message.handle in self._handles:
            raise ProtocolError(f"context.opened: {message.context_id!r} or its handle is in use")
        record.handle = message.handle
        self._handles[message.handle] = record

    def _add_words(self, message: WordsMessage) -> None:
        record = self._opened(message.context_id, "words")
        for timestamp in timestamps_of(message):
            _check_order(record, timestamp)
            record.words.append(timestamp)
            record.last_start_sample = timestamp.start_sample

    def _move_words(self, message: WordsMovedMessage) -> None:
        words = self._opened(message.context_id, "words_moved").words
        moved = {timestamp.word: timestamp for timestamp in timestamps_of(message)}
        places = [place for place, each in enumerate(words) if each.word in moved]
        if len(places) != len(message.words):
            raise ProtocolError("words_moved: expected words that were sent before")
        for place in places:
            words[place] = moved[words[place].word]

    def _lose_text(self, context_id: str | None, char_end: int) -> None:
        """Remove the words of a context that were sent but not spoken."""
        record = self._records.get(context_id or "")
        if record is not None:
            record.spoken_chars = char_end
            record.words = [word for word in record.words if word.word.char_end <= char_end]

    def _drop_text(self, context_id: str | None, start: int, end: int) -> None:
        """Remove text that the server has refused; no word after it has been sent."""
        record = self._records.get(context_id or "")
        if record is not None:
            record.text = record.text[:start] + record.text[end:]

    def _add_audio(
        self, record: ContextRecord, seq: int, sample_offset: int, pcm: bytes
    ) -> ClientAudio:
        expected = (record.messages_received, record.samples_received)
        if (seq, sample_offset) != expected:
            raise ProtocolError(
                f"audio of {record.context_id!r}: expected seq and sample_offset {expected}, "
                f"got {(seq, sample_offset)}"
            )
        samples, rest = divmod(len(pcm), record.audio.bytes_per_sample)
        if samples == 0 or rest != 0:
            raise ProtocolError(
                f"audio of {record.context_id!r}: expected whole samples, got {len(pcm)} bytes"
            )
        record.messages_received += 1
        record.samples_received += samples
        return ClientAudio(record.context_id, seq, sample_offset, pcm)

    def _set_done(self, message: DoneMessage) -> None:
        record = self._unfinished(message.context_id, "done")
        record.done = message
        record.final_words = timestamps_of(message.words_final) if message.words_final else None
        if message.reason == "idle":  # text may have been on its way
            record.text = record.text[: message.chars]
        if record.handle is not None:
            del self._handles[record.handle]
        self._ended[record.context_id] = None
        if len(self._ended) > MAX_RECORDS:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._records[oldest]

    # The record of a message's context, in a state that allows the message.

    def _unfinished(self, context_id: str, message: str) -> ContextRecord:
        record = self._records.get(context_id)
        if record is None or record.done is not None:
            raise ProtocolError(f"{message}: context {context_id[:128]!r} is not open")
        return record

    def _uncancelled(self, context_id: str, message: str) -> ContextRecord:
        record = self._unfinished(context_id, message)
        if record.state is WireState.CANCELLED:
            raise ProtocolError(f"{message}: expected only done after cancelled of {context_id!r}")
        return record

    def _opened(self, context_id: str, message: str) -> ContextRecord:
        record = self._uncancelled(context_id, message)
        if record.handle is None:
            raise ProtocolError(f"{message}: expected context.opened of {context_id!r} first")
        return record


def _valid(kind: type[_M], fields: dict[str, Any]) -> _M:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise refusal_of(error) from None  # the cause holds the application's text


def _check_order(record: ContextRecord, word: WordTimestamp) -> None:
    char_end = record.words[-1].word.char_end if record.words else 0
    is_after = char_end <= word.word.char_start < word.word.char_end
    if not is_after or word.start_sample < record.last_start_sample:
        raise ProtocolError("words: expected rising offsets and times")
