"""Both ends of one `tts.v1` socket, without the socket: what may be said when.

A shell reads messages from its socket and gives them to `receive`; it sends what the other methods
return, at the moment they return it and in that order. Per context the server says
`[opened] (audio | words | flushed)* [cancelled] done`; errors, cuts and pongs are answers and may
come between. What the messages look like is the business of a `protocol.dialect`. This module knows
no I/O, no clock, no text rules and no engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, Cut, WordTimestamp
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.protocol.dialects.dialect import Answer, Command, Dialect, Frames, TtsV1
from voiceagent_tts.protocol.messages import (
    AUDIO_KIND,
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    AudioBase64Message,
    AudioFormat,
    AudioMessage,
    Basis,
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
    OpenOptions,
    Ping,
    PongMessage,
    Prepare,
    ProtocolError,
    ReadyMessage,
    Reason,
    RefusedMessageError,
    ServerMessage,
    SessionLimits,
    SessionUpdate,
    WordList,
    WordsMessage,
    parse_server_message,
    refusal_of,
)

MAX_TOMBSTONES = 4_096
"""Ids of ended contexts that a server remembers, the newest; they can not be used again."""
MAX_HANDLE = 0xFFFF
MAX_RECORDS = 256
"""Ended contexts whose record a client keeps, the newest."""

_M = TypeVar("_M", bound=BaseModel)


@dataclass(slots=True)
class _ServerContext:
    handle: int
    audio: AudioFormat
    is_ended: bool = False  # the client: no more text
    is_cancelling: bool = False  # the client: stop
    is_opened: bool = False
    is_cancelled: bool = False  # `cancelled` has been sent
    messages_sent: int = 0
    samples_sent: int = 0  # at the output rate
    flush_received: int = -1
    flush_sent: int = -1
    char_end: int = 0
    start_sample: int = 0

    @property
    def takes_text(self) -> bool:
        return not (self.is_ended or self.is_cancelling)


class ServerConnection:
    """The server's end of one socket.

    Its sending methods assert what our own shell must get right; what a client gets wrong is a
    `RefusedMessageError` of `receive`, and the socket lives on.

    Args:
        limits: what this server allows, as `ready` tells it.
        dialect: how the client says things; None for `tts.v1`.
        max_tombstones: ids of ended contexts to remember.
    """

    def __init__(
        self,
        limits: SessionLimits,
        dialect: Dialect | None = None,
        *,
        max_tombstones: int = MAX_TOMBSTONES,
    ) -> None:
        self.limits = limits
        self._dialect = dialect or TtsV1()
        self._max_tombstones = max_tombstones
        self._contexts: dict[str, _ServerContext] = {}
        self._tombstones: dict[str, None] = {}
        self._defaults: dict[str, Any] = {}
        self._contexts_active = 0
        self._handles_used = 0
        self._is_ready = False
        self._is_draining = False

    @property
    def contexts(self) -> tuple[str, ...]:
        """Ids of the contexts that are still owed a `done`, oldest first."""
        return tuple(self._contexts)

    @property
    def is_sequential(self) -> bool:
        """Whether contexts speak one after the other, in the order in which they were opened."""
        return self._dialect.is_sequential

    # What came.

    def receive(self, data: str | bytes) -> list[Command]:
        """Check a message of the client and take it into account.

        Text for an unknown context becomes a `ContextOpen` with the session's defaults followed by
        the text. A message that changes nothing (empty text, a second `end` or `cancel`, a `cancel`
        of a context that has ended) becomes no message.

        Returns:
            What the shell has to do, in order.

        Raises:
            RefusedMessageError: the message is not legal; answer with `refused`.
        """
        if isinstance(data, bytes):
            raise RefusedMessageError(
                f"expected a text message; got a binary message of {len(data)} bytes",
                code=ErrorCode.INVALID_MESSAGE,
            )
        return [taken for command in self._read(data) for taken in self._take(command)]

    def _read(self, data: str) -> list[Command]:
        try:
            return self._dialect.read(data, self.limits.max_message_bytes)
        except RefusedMessageError as error:
            context_id = error.context_id
            error.is_open = error.is_open and context_id is not None and not self._knows(context_id)
            if error.is_open and context_id is not None:
                self._bury(context_id)
            raise

    def _take(self, message: Command) -> Sequence[Command]:
        match message:
            case ContextOpen():
                return self._open(message)
            case ContextText():
                return self._text(message)
            case ContextFlush():
                return self._flush(message)
            case ContextEnd():
                return self._end(message)
            case ContextCancel():
                return self._cancel(message)
            case ContextCut():
                if not self._knows(message.context_id):
                    raise _not_found(message.context_id)
                return [message]
            case SessionUpdate():
                given = message.model_fields_set - {"type"}
                self._defaults |= {name: getattr(message, name) for name in given}
                return [message]
            case Prepare() | Ping() | Close() | Answer():
                return [message]

    def _open(self, message: ContextOpen) -> list[ClientMessage]:
        context_id = message.context_id
        if self._knows(context_id):
            raise RefusedMessageError(
                f"context {context_id!r} exists, or has ended: expected a new id",
                code=ErrorCode.CONTEXT_EXISTS,
                context_id=context_id,
            )
        self._refuse_if_full(context_id)
        self._handles_used += 1
        self._contexts_active += 1
        self._contexts[context_id] = _ServerContext(self._handles_used, message.audio)
        return [message]

    def _refuse_if_full(self, context_id: str) -> None:
        if self._is_draining or self._handles_used == MAX_HANDLE:
            code = ErrorCode.DRAINING
            sentence = "this socket takes no more contexts: open another socket"
        elif self._contexts_active >= self.limits.max_contexts:
            code = ErrorCode.TOO_MANY_CONTEXTS
            sentence = f"expected at most {self.limits.max_contexts} contexts open on one socket"
        elif len(self._contexts) >= self.limits.max_contexts + self._max_tombstones:
            code = ErrorCode.TOO_MANY_CONTEXTS
            sentence = "contexts are cancelled faster than their answers are read"
        else:
            return
        self._bury(context_id)
        raise RefusedMessageError(sentence, code=code, context_id=context_id, is_open=True)

    def _text(self, message: ContextText) -> list[ClientMessage]:
        if self._knows(message.context_id):
            self._taking_text(message.context_id)
            return [message] if message.text else []
        if not message.text:
            return []
        fields = {"context_id": message.context_id, **self._defaults}
        return [*self._open(ContextOpen.model_validate(fields)), message]

    def _flush(self, message: ContextFlush) -> list[ClientMessage]:
        context = self._taking_text(message.context_id)
        if message.flush_id <= context.flush_received:
            raise RefusedMessageError(
                f"flush.flush_id: expected more than the last, {context.flush_received}; "
                f"got {message.flush_id}",
                code=ErrorCode.INVALID_PARAM,
                context_id=message.context_id,
            )
        context.flush_received = message.flush_id
        return [message]

    def _end(self, message: ContextEnd) -> list[ClientMessage]:
        context = self._contexts.get(message.context_id)
        if context is not None and context.is_ended:
            return []
        self._taking_text(message.context_id).is_ended = True
        return [message]

    def _cancel(self, message: ContextCancel) -> list[ClientMessage]:
        if not self._knows(message.context_id):
            raise _not_found(message.context_id)
        context = self._contexts.get(message.context_id)
        if context is None or context.is_cancelling:
            return []
        context.is_cancelling = True
        self._contexts_active -= 1
        return [message]

    def _knows(self, context_id: str) -> bool:
        return context_id in self._contexts or context_id in self._tombstones

    def _taking_text(self, context_id: str) -> _ServerContext:
        context = self._contexts.get(context_id)
        if context is not None and context.takes_text:
            return context
        if context is None and context_id not in self._tombstones:
            raise _not_found(context_id)
        raise RefusedMessageError(
            f"context {context_id!r} takes no more text: it was ended or cancelled, or is done",
            code=ErrorCode.CONTEXT_CLOSED,
            context_id=context_id,
        )

    def _bury(self, context_id: str) -> None:
        self._tombstones[context_id] = None
        if len(self._tombstones) > self._max_tombstones:
            del self._tombstones[next(iter(self._tombstones))]

    # What goes.

    def ready(self, *, session_id: str, model: str) -> Frames:
        """The handshake, before anything else."""
        assert not self._is_ready, "ready is sent once"
        self._is_ready = True
        message = ReadyMessage(session_id=session_id, model=model, limits=self.limits)
        return self._dialect.write(message)

    def opened(
        self, context_id: str, *, voice: str, language: str | None, seed: int | None, queue_ms: int
    ) -> Frames:
        """The context has, or waits for, a row."""
        context = self._sending(context_id)
        assert not context.is_opened, f"{context_id!r} is opened once"
        context.is_opened = True
        message = ContextOpened(
            context_id=context_id,
            handle=context.handle,
            voice=voice,
            language=language,
            seed=seed,
            queue_ms=queue_ms,
        )
        return self._dialect.write(message)

    def audio(self, context_id: str, pcm: bytes, sample_offset: int) -> Frames:
        """The next audio of a context, in its transport.

        Args:
            context_id: an opened context.
            pcm: 1 to 4,096 bytes in the context's encoding and rate.
            sample_offset: position of its first sample at the output rate: where the last ended.
        """
        context = self._speaking(context_id)
        assert 0 < len(pcm) <= MAX_MESSAGE_PCM_BYTES, len(pcm)
        assert len(pcm) % context.audio.bytes_per_sample == 0, (len(pcm), context.audio.encoding)
        assert sample_offset == context.samples_sent, (sample_offset, context.samples_sent)
        message = AudioMessage(context.handle, context.messages_sent, sample_offset, pcm)
        context.messages_sent += 1
        context.samples_sent += len(pcm) // context.audio.bytes_per_sample
        if context.audio.transport == "binary":
            return self._dialect.write(message)
        return self._dialect.write(AudioBase64Message.of(context_id, message))

    def words(self, context_id: str, words: Sequence[WordTimestamp]) -> Frames:
        """The next words of a context, positions at 24 kHz."""
        context = self._speaking(context_id)
        for timestamp in words:
            word = timestamp.word
            assert context.char_end <= word.char_start < word.char_end, timestamp
            assert context.start_sample <= timestamp.start_sample, timestamp
            context.char_end, context.start_sample = word.char_end, timestamp.start_sample
        return self._dialect.write(WordsMessage.of(words, context_id=context_id))

    def flushed(self, context_id: str, flush_id: int, audio_ms: int) -> Frames:
        """The text before the flush has been sent as audio, which ends at `audio_ms`."""
        context = self._speaking(context_id)
        assert context.flush_sent < flush_id <= context.flush_received, flush_id
        context.flush_sent = flush_id
        message = FlushedMessage(context_id=context_id, flush_id=flush_id, audio_ms=audio_ms)
        return self._dialect.write(message)

    def cancelled(self, context_id: str, cut: Cut, basis: Basis) -> Frames:
        """Answer to `cancel`; only `done` follows."""
        context = self._sending(context_id)
        assert context.is_cancelling, f"the client did not cancel {context_id!r}"
        context.is_cancelled = True
        message = CancelledMessage(
            context_id=context_id,
            text_spoken=cut.text_spoken,
            text_remaining=cut.text_remaining,
            partial=cut.is_partial,
            audio_sent_ms=context.audio.samples_to_ms(context.samples_sent),
            basis=basis,
        )
        return self._dialect.write(message)

    def cut(self, context_id: str, cut: Cut) -> Frames:
        """Answer to `cut`, also after the context's `done`."""
        assert self._knows(context_id), f"{context_id!r} never was"
        message = CutMessage(
            context_id=context_id,
            text_spoken=cut.text_spoken,
            text_remaining=cut.text_remaining,
            partial=cut.is_partial,
        )
        return self._dialect.write(message)

    def done(
        self,
        context_id: str,
        reason: Reason,
        *,
        chars: int,
        ttfa_ms: int | None = None,
        gen_ms: int | None = None,
        words_final: WordList | None = None,
    ) -> Frames:
        """The context's last message; also for one that could not be opened, after its error."""
        context = self._contexts.pop(context_id)
        assert context.is_cancelled == (reason == "cancelled"), reason
        self._contexts_active -= not context.is_cancelling
        self._bury(context_id)
        message = DoneMessage(
            context_id=context_id,
            reason=reason,
            audio_ms=context.audio.samples_to_ms(context.samples_sent),
            chars=chars,
            ttfa_ms=ttfa_ms,
            gen_ms=gen_ms,
            words_final=words_final,
        )
        return self._dialect.write(message)

    def error(self, error: VoiceAgentError, context_id: str | None = None) -> Frames:
        """Tell of `error`; where it ends a context, `done` with reason `error` comes next."""
        return self._dialect.write(ErrorMessage.of(error, context_id))

    def refused(self, error: RefusedMessageError) -> Frames:
        """The answer to a message that `receive` refused: an error, and `done` for a lost open."""
        answer = self.error(error, error.context_id)
        if error.is_open and error.context_id is not None:
            done = DoneMessage(
                context_id=error.context_id,
                reason="error",
                audio_ms=0,
                chars=0,
                ttfa_ms=None,
                gen_ms=None,
            )
            answer += self._dialect.write(done)
        return answer

    def draining(self, deadline_ms: int) -> Frames:
        """The server will close; from now on `receive` refuses to open contexts."""
        self._is_draining = True
        return self._dialect.write(DrainingMessage(deadline_ms=deadline_ms))

    def pong(self, t: int) -> Frames:
        """Answer to `ping`."""
        return self._dialect.write(PongMessage(t=t))

    def _sending(self, context_id: str) -> _ServerContext:
        assert self._is_ready, "ready comes first"
        context = self._contexts[context_id]
        assert not context.is_cancelled, f"only done follows cancelled of {context_id!r}"
        return context

    def _speaking(self, context_id: str) -> _ServerContext:
        context = self._sending(context_id)
        assert context.is_opened, f"opened of {context_id!r} comes first"
        return context


def _not_found(context_id: str) -> RefusedMessageError:
    return RefusedMessageError(
        f"context {context_id!r} was never opened on this socket",
        code=ErrorCode.CONTEXT_NOT_FOUND,
        context_id=context_id,
    )


@dataclass(frozen=True, slots=True)
class ClientAudio:
    """Audio as a client gets it, in either transport; `sample_offset` is at the output rate."""

    context_id: str
    seq: int
    sample_offset: int
    pcm: bytes


@dataclass(slots=True)
class ContextRecord:
    """What a client has said and heard of one context; enough to cut its text locally."""

    context_id: str
    audio: AudioFormat
    handle: int | None = None
    """Its name in binary messages, once the server has opened it."""
    text: str = ""
    """All text sent, which word offsets count in."""
    words: list[WordTimestamp] = field(default_factory=list[WordTimestamp])
    messages_received: int = 0
    samples_received: int = 0
    """At the output rate."""
    flushes: int = 0
    is_ended: bool = False
    """Whether the client has said that no more text comes, or that it wants no more audio."""
    is_cancelled: bool = False
    """Whether the server has said `cancelled`."""
    done: DoneMessage | None = None


ClientEvent = (
    ReadyMessage
    | ContextOpened
    | ClientAudio
    | WordsMessage
    | FlushedMessage
    | CancelledMessage
    | CutMessage
    | DoneMessage
    | ErrorMessage
    | DrainingMessage
    | PongMessage
)


class ClientConnection:
    """The client's end of one socket; may talk before `ready` has come."""

    def __init__(self) -> None:
        self.ready: ReadyMessage | None = None
        self.is_draining = False
        """Whether the server takes no more contexts on this socket."""
        self._records: dict[str, ContextRecord] = {}
        self._ended: dict[str, None] = {}
        self._handles: dict[int, ContextRecord] = {}

    # What goes.

    def open(
        self,
        context_id: str,
        *,
        metadata: dict[str, Any] | None = None,
        **options: Unpack[OpenOptions],
    ) -> str:
        """Open a context; `options` are the fields of `ContextDefaults`.

        Raises:
            InvalidRequestError: an option is wrong, or the id is in use (`context_exists`).
            OverloadedError: the server takes no more contexts on this socket (`draining`).
        """
        if self.is_draining:
            raise OverloadedError("this socket takes no more contexts", code=ErrorCode.DRAINING)
        if context_id in self._records:
            raise InvalidRequestError(
                f"context {context_id!r} exists, or has ended: expected a new id",
                code=ErrorCode.CONTEXT_EXISTS,
            )
        unknown = options.keys() - OpenOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"open() has no option {', '.join(sorted(unknown))}")
        fields = {"context_id": context_id, "metadata": metadata, **options}
        message = _valid(ContextOpen, fields)
        data = self._encode(message)
        self._records[context_id] = ContextRecord(context_id, message.audio)
        return data

    def text(self, context_id: str, text: str) -> str:
        """More text of a context.

        Raises:
            InvalidRequestError: the context takes no text, or `text` is too long for one message
                or no valid Unicode.
        """
        record = self._taking_text(context_id)
        data = self._encode(_valid(ContextText, {"context_id": context_id, "text": text}))
        record.text += text
        return data

    def flush(self, context_id: str) -> str:
        """Speak what is there; the nth flush of a context is answered with `flush_id` n.

        Raises:
            InvalidRequestError: the context takes no text.
        """
        record = self._taking_text(context_id)
        record.flushes += 1
        return ContextFlush(context_id=context_id, flush_id=record.flushes).encode()

    def end(self, context_id: str) -> str:
        """No more text is coming.

        Raises:
            InvalidRequestError: the context takes no text.
        """
        self._taking_text(context_id).is_ended = True
        return ContextEnd(context_id=context_id).encode()

    def cancel(self, context_id: str, played_ms: int | None = None) -> str:
        """Stop a context, also one that may just have ended; only the first cancel is answered.

        Raises:
            InvalidRequestError: the context is unknown, or `played_ms` is wrong.
        """
        record = self.record(context_id)
        fields = {"context_id": context_id, "played_ms": played_ms}
        message = _valid(ContextCancel, fields)
        record.is_ended = True
        return message.encode()

    def cut(self, context_id: str, played_ms: int) -> str:
        """Ask what had been heard of a context, also of one that has ended.

        Raises:
            InvalidRequestError: `played_ms` is wrong.
        """
        fields = {"context_id": context_id, "played_ms": played_ms}
        return _valid(ContextCut, fields).encode()

    def prepare(
        self, *, voice: str | None = None, language: str | None = None, instruct: str | None = None
    ) -> str:
        """Let the server do ahead what a context with this voice needs.

        Raises:
            InvalidRequestError: an argument is wrong.
        """
        fields = {"voice": voice, "language": language, "instruct": instruct}
        return self._encode(_valid(Prepare, fields))

    def ping(self, t: int = 0) -> str:
        """Ask for a pong with the same `t`."""
        return Ping(t=t).encode()

    def close(self) -> str:
        """Ask the server to close the socket."""
        return Close().encode()

    def record(self, context_id: str) -> ContextRecord:
        """What is known of a context; the newest 256 that have ended are kept.

        Raises:
            InvalidRequestError: the context is unknown.
        """
        record = self._records.get(context_id)
        if record is None:
            raise InvalidRequestError(
                f"context {context_id!r} was never opened on this socket",
                code=ErrorCode.CONTEXT_NOT_FOUND,
            )
        return record

    def _taking_text(self, context_id: str) -> ContextRecord:
        record = self.record(context_id)
        if record.is_ended or record.done is not None:
            raise InvalidRequestError(
                f"context {context_id!r} takes no more text: it was ended or cancelled, or is done",
                code=ErrorCode.CONTEXT_CLOSED,
            )
        return record

    def _encode(self, message: ClientMessage) -> str:
        try:
            data = message.encode()
        except (PydanticSerializationError, UnicodeError):
            raise InvalidRequestError(
                f"{message.type}: expected valid Unicode; got a lone surrogate",
                code=ErrorCode.INVALID_PARAM,
            ) from None
        limit = self.ready.limits.max_message_bytes if self.ready else MAX_MESSAGE_BYTES
        if len(data) * 4 > limit and len(data.encode()) > limit:
            raise InvalidRequestError(
                f"{message.type}: expected at most {limit} bytes; got {len(data.encode())}",
                code=ErrorCode.MESSAGE_TOO_BIG,
            )
        return data

    # What came.

    def receive(self, data: str | bytes) -> ClientEvent | None:
        """Check a message of the server and take it into account.

        Returns:
            The message, audio with its context's id; None for a kind that this version ignores.

        Raises:
            ProtocolError: the server broke the protocol; close the socket with 1002.
            VoiceAgentError: the server speaks another protocol (`version_mismatch`).
        """
        if isinstance(data, bytes):
            return self._binary(data)
        message = parse_server_message(data)
        if message is None:
            return None
        if self.ready is None:
            self._handshake(message)
        elif isinstance(message, ReadyMessage):
            raise ProtocolError("ready: expected once; got a second")
        return self._take(message)

    def _handshake(self, message: ServerMessage) -> None:
        match message:
            case ReadyMessage():
                if message.protocol.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
                    raise VoiceAgentError(
                        f"expected a server of protocol {PROTOCOL_VERSION}; "
                        f"got {message.protocol[:16]}",
                        code=ErrorCode.VERSION_MISMATCH,
                    )
                self.ready = message
            case ErrorMessage():
                pass  # why there will be no ready
            case _:
                raise ProtocolError(f"expected ready as the first message; got {message.type}")

    def _take(self, message: ServerMessage) -> ClientEvent:
        match message:
            case AudioBase64Message():
                record = self._opened(message.context_id, "audio")
                return self._audio(record, message.seq, message.sample_offset, message.pcm)
            case ContextOpened():
                self._open(message)
            case WordsMessage():
                self._words(message)
            case FlushedMessage():
                self._opened(message.context_id, "flushed")
            case CancelledMessage():
                self._running(message.context_id, "cancelled").is_cancelled = True
            case DoneMessage():
                self._done(message)
            case DrainingMessage() | ErrorMessage(code=ErrorCode.DRAINING):
                self.is_draining = True
            case ReadyMessage() | ErrorMessage() | CutMessage() | PongMessage():
                pass
        return message

    def _open(self, message: ContextOpened) -> None:
        record = self._running(message.context_id, "context.opened")
        if record.handle is not None or message.handle in self._handles:
            raise ProtocolError(f"context.opened: {message.context_id!r} or its handle is in use")
        record.handle = message.handle
        self._handles[message.handle] = record

    def _words(self, message: WordsMessage) -> None:
        record = self._opened(message.context_id, "words")
        for timestamp in message.timestamps():
            _check_order(record.words[-1] if record.words else None, timestamp)
            record.words.append(timestamp)

    def _done(self, message: DoneMessage) -> None:
        record = self._live(message.context_id, "done")
        record.done = message
        if record.handle is not None:
            del self._handles[record.handle]
        self._ended[record.context_id] = None
        if len(self._ended) > MAX_RECORDS:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._records[oldest]

    def _binary(self, data: bytes) -> ClientAudio | None:
        if data[:1] != bytes([AUDIO_KIND]):
            return None
        message = AudioMessage.decode(data)
        record = self._handles.get(message.handle)
        if record is None or record.is_cancelled:
            raise ProtocolError(f"audio: no context with handle {message.handle} may speak")
        return self._audio(record, message.seq, message.sample_offset, message.pcm)

    def _audio(
        self, record: ContextRecord, seq: int, sample_offset: int, pcm: bytes
    ) -> ClientAudio:
        expected = (record.messages_received, record.samples_received)
        if (seq, sample_offset) != expected:
            raise ProtocolError(
                f"audio of {record.context_id!r}: expected seq and sample_offset {expected}; "
                f"got {(seq, sample_offset)}"
            )
        samples, rest = divmod(len(pcm), record.audio.bytes_per_sample)
        if samples == 0 or rest != 0:
            raise ProtocolError(f"audio of {record.context_id!r}: got {len(pcm)} bytes")
        record.messages_received += 1
        record.samples_received += samples
        return ClientAudio(record.context_id, seq, sample_offset, pcm)

    def _live(self, context_id: str, what: str) -> ContextRecord:
        record = self._records.get(context_id)
        if record is None or record.done is not None:
            raise ProtocolError(f"{what}: context {context_id[:128]!r} is not open")
        return record

    def _running(self, context_id: str, what: str) -> ContextRecord:
        record = self._live(context_id, what)
        if record.is_cancelled:
            raise ProtocolError(f"{what}: expected only done after cancelled of {context_id!r}")
        return record

    def _opened(self, context_id: str, what: str) -> ContextRecord:
        record = self._running(context_id, what)
        if record.handle is None:
            raise ProtocolError(f"{what}: expected context.opened of {context_id!r} first")
        return record


def _valid(kind: type[_M], fields: dict[str, Any]) -> _M:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise refusal_of(error) from None  # the cause holds the application's text


def _check_order(last: WordTimestamp | None, word: WordTimestamp) -> None:
    char_end = last.word.char_end if last else 0
    start_sample = last.start_sample if last else 0
    is_after = char_end <= word.word.char_start < word.word.char_end
    if not is_after or word.start_sample < start_sample:
        raise ProtocolError("words: expected rising offsets and times")
