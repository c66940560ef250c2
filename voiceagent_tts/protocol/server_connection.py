"""The server's end of one `tts.v1` socket, without the socket: which messages are legal, and when.

The caller reads messages from its socket and passes them to `receive`. It sends what the other
methods return, immediately and in the order of the calls. For each context the server sends
`[opened] (audio | words | words_moved | flushed | warning)* [cancelled] done`; `error`, `cut` and
`pong` answer the client and may come in between. A `Dialect` decides how messages look: as in
`tts.v1`, or as in another protocol of `plugins.dialects`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from voiceagent_tts.core import Cut, CutBasis, DoneReason, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.messages import (
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
    Ping,
    PongMessage,
    Prepare,
    ProvenanceFields,
    ReadyMessage,
    ServerMessage,
    SessionLimits,
    SessionUpdate,
    WarningMessage,
    WordList,
    WordsMessage,
    WordsMovedMessage,
    parse_client_message,
)
from voiceagent_tts.protocol.refusals import (
    RefusedMessageError,
    WireState,
    context_refusal,
)

MakeMessages = Callable[[], list[str]]
"""Makes expensive messages, such as compressed audio: in a thread, when it is their turn."""

WireMessages = list[str | bytes | MakeMessages]  # WebSocket messages to send, in order

MAX_TOMBSTONES = 4_096
"""Maximum number of ids of ended contexts that a socket remembers, to refuse their reuse."""

_HASH_BYTES = 8

MAX_HANDLE = 0xFFFF
"""Largest handle of a context in binary messages; a socket never uses a handle twice."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A message that the dialect answers with by itself, or what makes it."""

    data: str | MakeMessages


Closing = tuple[int, str]  # code and reason with which to close a socket

Command = ClientMessage | Answer  # commands to the server from a client's messages


class Dialect:
    """Translates the messages of one socket to and from `tts.v1`; here they are `tts.v1` already.

    The protocols of other servers are subclasses, which may keep the socket's state.

    Attributes:
        is_sequential: whether contexts speak one after the other, in the order of their opening.
        closing: how to close the socket once what `write` returned is sent; None to keep it open.
    """

    is_sequential: ClassVar[bool] = False
    closing: Closing | None = None

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """Parse a text message of the client into commands, in order.

        Raises:
            RefusedMessageError: it is not a message of this dialect, or is longer than `max_bytes`;
                the state of the dialect has not changed.
        """
        message = parse_client_message(data)
        context_id = getattr(message, "context_id", None)
        refuses_open = isinstance(message, ContextOpen)
        refuse_if_big(data, max_bytes, message.type, context_id, refuses_open=refuses_open)
        return [message]

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """Translate `message` into what this client expects: any number of WebSocket messages."""
        return [message.encode()]


@dataclass(slots=True)
class _Context:
    """A context without its `done`."""

    handle: int
    audio: AudioFormat
    state: WireState = WireState.OPEN
    has_end: bool = False  # `end` was received; a second one is ignored, even after `cancel`
    messages_sent: int = 0
    samples_sent: int = 0  # at the output rate
    flush_received: int = -1
    char_end: int = 0  # of the last word sent
    start_sample: int = 0  # of the last word sent

    @property
    def is_cancel_requested(self) -> bool:
        return self.state in (WireState.CANCELLING, WireState.CANCELLED)

    @property
    def audio_sent_ms(self) -> int:
        return self.audio.samples_to_ms(self.samples_sent)


class ServerConnection:
    """Checks what a client sends, and builds what the server sends, on one socket.

    A client's mistake raises `RefusedMessageError` in `receive`, and the socket stays open. The
    sending methods assert the order of audio and of words. The id of a context that has ended
    leaves a tombstone: late messages for it are refused, and it cannot be opened again.

    Args:
        limits: what this server allows; sent in `ready`.
        dialect: the client's protocol; None for `tts.v1`.
    """

    def __init__(self, limits: SessionLimits, dialect: Dialect | None = None) -> None:
        self.dialect = dialect or Dialect()
        self._limits = limits
        self._contexts: dict[str, _Context] = {}
        # Hashes of ids, the oldest first; a set of as many would take nine times the memory.
        self._tombstones = bytearray()
        self._handles_used = 0
        self._defaults: dict[str, Any] = {}  # from `session.update`
        self._is_draining = False

    # Messages from the client.

    def receive(self, data: str | bytes) -> list[Command]:
        """Check and apply one message of the client: it may change the state of its context.

        Text for an unknown context becomes a `ContextOpen` with the session's defaults, followed by
        the text. A message without effect (empty text, a second `end` or `cancel`, a `cancel` of a
        context that has ended) becomes an empty list.

        Returns:
            Commands for the server, in order.

        Raises:
            RefusedMessageError: the message is not legal; answer with `refused`.
        """
        if isinstance(data, bytes):
            raise RefusedMessageError(
                f"expected a text message, got a binary message of {len(data)} bytes",
                code=ErrorCode.INVALID_MESSAGE,
            )
        return [legal for command in self._read(data) for legal in self._check_and_apply(command)]

    def _read(self, data: str) -> list[Command]:
        try:
            return self.dialect.read(data, self._limits.max_message_bytes)
        except RefusedMessageError as error:
            context_id = error.context_id
            error.refuses_open &= context_id is not None and not self._is_known(context_id)
            if error.refuses_open and context_id is not None:
                self._add_tombstone(context_id)
            raise

    def _check_and_apply(self, message: Command) -> Sequence[Command]:
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
                self._refuse_unknown(message.context_id)
                return [message]
            case SessionUpdate():
                given = message.model_fields_set - {"type"}
                self._defaults |= {name: getattr(message, name) for name in given}
                return [message]
            case Prepare() | Ping() | Close() | Answer():
                return [message]

    def _open(self, message: ContextOpen) -> list[ClientMessage]:
        context_id = message.context_id
        if self._is_known(context_id):
            raise context_refusal(ErrorCode.CONTEXT_EXISTS, context_id)
        self._refuse_if_full(context_id)
        self._handles_used += 1
        self._contexts[context_id] = _Context(self._handles_used, message.audio)
        return [message]

    def _refuse_if_full(self, context_id: str) -> None:
        most = self._limits.max_contexts
        if self._is_draining or self._handles_used == MAX_HANDLE:
            sentence = "this socket accepts no more contexts; open another socket"
            self._refuse_open(context_id, ErrorCode.DRAINING, sentence)
        # Cancelled contexts do not count against the maximum, but they cannot be piled up either.
        if sum(not context.is_cancel_requested for context in self._contexts.values()) >= most:
            sentence = f"expected at most {most} contexts open on one socket"
            self._refuse_open(context_id, ErrorCode.TOO_MANY_CONTEXTS, sentence)
        if len(self._contexts) >= most + MAX_TOMBSTONES:
            sentence = "too many cancelled contexts wait for their `done`; read the socket"
            self._refuse_open(context_id, ErrorCode.TOO_MANY_CONTEXTS, sentence)

    def _refuse_open(self, context_id: str, code: ErrorCode, sentence: str) -> NoReturn:
        self._add_tombstone(context_id)
        raise RefusedMessageError(sentence, code=code, context_id=context_id, refuses_open=True)

    def _text(self, message: ContextText) -> list[ClientMessage]:
        if self._is_known(message.context_id):
            self._accepting_text(message.context_id)
            return [message] if message.text else []
        if not message.text:
            return []
        fields = {"context_id": message.context_id, **self._defaults}
        return [*self._open(ContextOpen.model_validate(fields)), message]

    def _flush(self, message: ContextFlush) -> list[ClientMessage]:
        context = self._accepting_text(message.context_id)
        if message.flush_id <= context.flush_received:
            raise RefusedMessageError(
                f"flush.flush_id: expected an id greater than {context.flush_received}, "
                f"got {message.flush_id}",
                code=ErrorCode.INVALID_PARAM,
                context_id=message.context_id,
            )
        context.flush_received = message.flush_id
        return [message]

    def _end(self, message: ContextEnd) -> list[ClientMessage]:
        context = self._contexts.get(message.context_id)
        if context is not None and context.has_end:
            return []
        context = self._accepting_text(message.context_id)
        context.state, context.has_end = WireState.TEXT_ENDED, True
        return [message]

    def _cancel(self, message: ContextCancel) -> list[ClientMessage]:
        self._refuse_unknown(message.context_id)
        context = self._contexts.get(message.context_id)
        if context is None or context.is_cancel_requested:
            return []
        context.state = WireState.CANCELLING
        return [message]

    def _is_known(self, context_id: str) -> bool:
        """Whether an id is that of a context, or of one that has ended."""
        return context_id in self._contexts or _hash(context_id) in self._tombstones

    def _refuse_unknown(self, context_id: str) -> None:
        if not self._is_known(context_id):
            raise context_refusal(ErrorCode.CONTEXT_NOT_FOUND, context_id)

    def _accepting_text(self, context_id: str) -> _Context:
        context = self._contexts.get(context_id)
        if context is None:
            self._refuse_unknown(context_id)
        if context is None or context.state is not WireState.OPEN:
            raise context_refusal(ErrorCode.CONTEXT_CLOSED, context_id)
        return context

    def _add_tombstone(self, context_id: str) -> None:
        """Remember an id that must not be opened again; forget the oldest one beyond the limit."""
        self._tombstones += _hash(context_id)
        del self._tombstones[: -MAX_TOMBSTONES * _HASH_BYTES]

    # Messages to the client.

    def ready(self, *, session_id: str, model: str, has_word_times: bool = True) -> WireMessages:
        """First message of the socket."""
        limits = self._limits
        return self.dialect.write(
            ReadyMessage(
                session_id=session_id, model=model, has_word_times=has_word_times, limits=limits
            )
        )

    def opened(
        self, context_id: str, *, voice: str, language: str | None, seed: int | None, queue_ms: int
    ) -> WireMessages:
        """A row is reserved for the context; `queue_ms` is how long that took."""
        message = ContextOpened(
            context_id=context_id,
            handle=self._sending(context_id).handle,
            voice=voice,
            language=language,
            seed=seed,
            queue_ms=queue_ms,
        )
        return self.dialect.write(message)

    def audio(self, context_id: str, pcm: bytes, sample_offset: int) -> WireMessages:
        """The next audio of a context, in the transport that its client chose.

        Args:
            context_id: a context whose `context.opened` has been sent.
            pcm: 1 to 4,096 bytes in the context's encoding and sample rate.
            sample_offset: position of the first sample, at the output rate; the end of the audio
                before it.
        """
        context = self._sending(context_id)
        assert sample_offset == context.samples_sent, (sample_offset, context.samples_sent)
        message = AudioMessage(context.handle, context.messages_sent, sample_offset, pcm)
        context.messages_sent += 1
        context.samples_sent += len(pcm) // context.audio.bytes_per_sample
        if context.audio.transport == "binary":
            return self.dialect.write(message)
        return self.dialect.write(AudioBase64Message.of(context_id, message))

    def words(self, context_id: str, words: Sequence[WordTimestamp]) -> WireMessages:
        """The next words of a context; each follows the one before it in text and time.

        Their positions are samples at 24 kHz.
        """
        context = self._sending(context_id)
        for timestamp in words:
            word = timestamp.word
            assert context.char_end <= word.char_start < word.char_end, timestamp
            assert context.start_sample <= timestamp.start_sample, timestamp
            context.char_end, context.start_sample = word.char_end, timestamp.start_sample
        return self.dialect.write(WordsMessage.of(words, context_id=context_id))

    def words_moved(self, context_id: str, words: Sequence[WordTimestamp]) -> WireMessages:
        """Better times of words that were sent."""
        self._sending(context_id)
        return self.dialect.write(WordsMovedMessage.of(words, context_id=context_id))

    def flushed(self, context_id: str, flush_id: int, audio_ms: int) -> WireMessages:
        """All audio of the text before the flush has been sent; it ends at `audio_ms`."""
        self._sending(context_id)
        return self.dialect.write(
            FlushedMessage(context_id=context_id, flush_id=flush_id, audio_ms=audio_ms)
        )

    def warning(self, context_id: str, code: WarningCode, message: str) -> WireMessages:
        """Output is degraded; `message` says why, and what to do."""
        self._sending(context_id)
        return self.dialect.write(WarningMessage(context_id=context_id, code=code, message=message))

    def cancelled(self, context_id: str, cut: Cut, basis: CutBasis) -> WireMessages:
        """Answer to `cancel`; only `done` may follow."""
        context = self._sending(context_id)
        context.state = WireState.CANCELLED
        return self.dialect.write(
            CancelledMessage.of(
                cut, context_id=context_id, audio_sent_ms=context.audio_sent_ms, basis=basis
            )
        )

    def cut(self, context_id: str, cut: Cut) -> WireMessages:
        """Answer to `cut`, before or after the context's `done`."""
        return self.dialect.write(CutMessage.of(cut, context_id=context_id))

    def done(
        self,
        context_id: str,
        reason: DoneReason,
        *,
        chars: int,
        ttfa_ms: int | None = None,
        gen_ms: int | None = None,
        words_final: WordList | None = None,
        provenance: ProvenanceFields | None = None,
    ) -> WireMessages:
        """Last message of a context; follows the `error` of a context that could not be opened.

        A context whose cancel was answered is `cancelled`, even if it fails afterwards.
        """
        context = self._contexts[context_id]
        if context.state is WireState.CANCELLED:
            reason = "cancelled"
        assert context.state is WireState.CANCELLED or reason != "cancelled", context_id
        del self._contexts[context_id]
        self._add_tombstone(context_id)
        message = DoneMessage(
            context_id=context_id,
            reason=reason,
            audio_ms=context.audio_sent_ms,
            chars=chars,
            ttfa_ms=ttfa_ms,
            gen_ms=gen_ms,
            words_final=words_final,
            provenance=provenance,
        )
        return self.dialect.write(message)

    def error(self, error: VoiceAgentError, context_id: str | None = None) -> WireMessages:
        """Report `error`; if it ends the context, send `done` with reason `error` next."""
        return self.dialect.write(ErrorMessage.of(error, context_id))

    def refused(self, error: RefusedMessageError) -> WireMessages:
        """Answer to a message that `receive` refused: `error`, and `done` for a refused open."""
        answer, context_id = self.error(error, error.context_id), error.context_id
        if error.refuses_open and context_id is not None:
            done = DoneMessage(
                context_id=context_id, reason="error", audio_ms=0, chars=0,
                ttfa_ms=None, gen_ms=None,
            )  # fmt: skip
            answer += self.dialect.write(done)
        return answer

    def draining(self, deadline_ms: int) -> WireMessages:
        """The server is going to close the socket; from now on `receive` refuses new contexts."""
        self._is_draining = True
        return self.dialect.write(DrainingMessage(deadline_ms=deadline_ms))

    def pong(self, t: int) -> WireMessages:
        """Answer to `ping`."""
        return self.dialect.write(PongMessage(t=t))

    def _sending(self, context_id: str) -> _Context:
        """The context; asserts that a message other than `done` may be sent for it."""
        context = self._contexts[context_id]
        is_cancelled = context.state is WireState.CANCELLED
        assert not is_cancelled, f"only done may follow cancelled of {context_id!r}"
        return context


def _hash(context_id: str) -> bytes:
    """Eight bytes that a client cannot choose: Python's hashes differ from process to process."""
    return hash(context_id).to_bytes(_HASH_BYTES, "little", signed=True)


def refuse_if_big(
    data: str,
    max_bytes: int,
    name: str,
    context_id: str | None = None,
    *,
    refuses_open: bool = False,
) -> None:
    """Refuse a message that is longer than `max_bytes`.

    Raises:
        RefusedMessageError: with code `message_too_big`.
    """
    if len(data) * 4 > max_bytes and (size := len(data.encode())) > max_bytes:
        raise RefusedMessageError(
            f"{name}: expected at most {max_bytes} bytes, got {size}",
            code=ErrorCode.MESSAGE_TOO_BIG,
            context_id=context_id,
            refuses_open=refuses_open,
        )
