"""The server's end of one `tts.v1` socket, without the socket: which messages are legal, and when.

The caller reads messages from its socket and passes them to `receive`. It sends what the other
methods return, immediately and in the order of the calls. For each context the server sends
`[opened] (audio | words | words_moved | flushed | warning)* [cancelled] done`; `error`, `cut` and
`pong` answer the client and may come in between. A `Dialect` decides how messages look: `TtsV1`, or
one of `plugins.dialects`. This module knows no I/O, no clock, no text rules and no engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, Cut, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.messages import (
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
    Ping,
    PongMessage,
    Prepare,
    ProvenanceFields,
    ReadyMessage,
    Reason,
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
    context_closed,
    context_exists,
    context_not_found,
)

WireMessages = list[str | bytes]
"""WebSocket messages to send, in order."""

MakeMessages = Callable[[], list[str]]
"""Makes expensive messages, such as compressed audio; called in a thread."""

MAX_TOMBSTONES = 4_096
"""Maximum number of ids of ended contexts that a server remembers, to refuse their reuse."""

_HASH_BYTES = 8

MAX_HANDLE = 0xFFFF
"""Largest handle of a context in binary messages; a socket never uses a handle twice."""

NO_MORE_CONTEXTS = "this socket accepts no more contexts; open another socket"


@dataclass(frozen=True, slots=True)
class Answer:
    """A message that the dialect answers with by itself, or what makes it."""

    data: str | MakeMessages


Closing = tuple[int, str]
"""Code and reason with which to close a socket."""

Command = ClientMessage | Answer
"""Commands to the server from a client's messages."""


class Dialect(Protocol):
    """Translates the messages of one socket to and from `tts.v1`; may keep the socket's state."""

    @property
    def is_sequential(self) -> bool:
        """Whether contexts speak one after the other, in the order of their opening."""
        ...

    @property
    def closing(self) -> Closing | None:
        """How to close the socket once what `write` returned is sent; None to keep it open."""
        ...

    @property
    def late(self) -> MakeMessages | None:
        """Makes the messages that come before what `write` has just returned; None for none.

        To be called when it is their turn to be sent, in the order of the calls of `write`.
        """
        ...

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """Parse a text message of the client into commands, in order.

        Raises:
            RefusedMessageError: it is not a message of this dialect, or is longer than `max_bytes`;
                the state of the dialect has not changed.
        """
        ...

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """Translate `message` into what this client expects: any number of WebSocket messages."""
        ...


class TtsV1:
    """The project's own dialect: `tts.v1`, unchanged."""

    is_sequential = False
    closing = None
    late = None

    def read(self, data: str, max_bytes: int) -> list[Command]:
        """See `Dialect.read`."""
        message = parse_client_message(data)
        context_id = getattr(message, "context_id", None)
        refuses_open = isinstance(message, ContextOpen)
        refuse_if_big(data, max_bytes, message.type, context_id, refuses_open=refuses_open)
        return [message]

    def write(self, message: ServerMessage | AudioMessage) -> WireMessages:
        """See `Dialect.write`."""
        return [message.encode()]


class ServerConnection:
    """Checks what a client sends, and builds what the server sends, on one socket.

    A client's mistake raises `RefusedMessageError` in `receive`, and the socket stays open. The
    sending methods assert what the server itself must do right.

    Args:
        limits: what this server allows; sent in `ready`.
        dialect: the client's protocol; None for `tts.v1`.
        max_tombstones: number of ids of ended contexts to remember.
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
        self._contexts = ServerContexts(limits.max_contexts, max_tombstones)
        self._defaults: dict[str, Any] = {}  # from `session.update`
        self._is_ready = False
        self._is_draining = False

    @property
    def contexts(self) -> tuple[str, ...]:
        """Ids of the contexts without their `done`, oldest first."""
        return self._contexts.ids

    @property
    def closing(self) -> Closing | None:
        """How to close the socket once all messages are sent; None to keep it open."""
        return self._dialect.closing

    @property
    def late(self) -> MakeMessages | None:
        """Makes what comes before the messages that were returned last; as `Dialect.late`."""
        return self._dialect.late

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
            return self._dialect.read(data, self.limits.max_message_bytes)
        except RefusedMessageError as error:
            context_id = error.context_id
            error.refuses_open = (
                error.refuses_open and context_id is not None and context_id not in self._contexts
            )
            if error.refuses_open and context_id is not None:
                self._contexts.add_tombstone(context_id)
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
                if message.context_id not in self._contexts:
                    raise context_not_found(message.context_id)
                return [message]
            case SessionUpdate():
                given = message.model_fields_set - {"type"}
                self._defaults |= {name: getattr(message, name) for name in given}
                return [message]
            case Prepare() | Ping() | Close() | Answer():
                return [message]

    def _open(self, message: ContextOpen) -> list[ClientMessage]:
        context_id = message.context_id
        if context_id in self._contexts:
            raise context_exists(context_id)
        if self._is_draining:
            self._contexts.refuse_open(context_id, ErrorCode.DRAINING, NO_MORE_CONTEXTS)
        self._contexts.add(context_id, message.audio)
        return [message]

    def _text(self, message: ContextText) -> list[ClientMessage]:
        if message.context_id in self._contexts:
            self._contexts.accepting_text(message.context_id)
            return [message] if message.text else []
        if not message.text:
            return []
        fields = {"context_id": message.context_id, **self._defaults}
        return [*self._open(ContextOpen.model_validate(fields)), message]

    def _flush(self, message: ContextFlush) -> list[ClientMessage]:
        context = self._contexts.accepting_text(message.context_id)
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
        context = self._contexts.find(message.context_id)
        if context is not None and context.has_end:
            return []
        context = self._contexts.accepting_text(message.context_id)
        context.state, context.has_end = WireState.ENDED, True
        return [message]

    def _cancel(self, message: ContextCancel) -> list[ClientMessage]:
        if message.context_id not in self._contexts:
            raise context_not_found(message.context_id)
        context = self._contexts.find(message.context_id)
        if context is None or context.is_cancel_requested:
            return []
        context.state = WireState.CANCELLING
        return [message]

    # Messages to the client.

    def ready(self, *, session_id: str, model: str, has_word_times: bool = True) -> WireMessages:
        """First message of the socket."""
        assert not self._is_ready, "ready is sent once"
        self._is_ready = True
        message = ReadyMessage(
            session_id=session_id,
            model=model,
            has_word_times=has_word_times,
            limits=self.limits,
        )
        return self._dialect.write(message)

    def opened(
        self, context_id: str, *, voice: str, language: str | None, seed: int | None, queue_ms: int
    ) -> WireMessages:
        """A row is reserved for the context; `queue_ms` is how long that took."""
        context = self._context_for_sending(context_id)
        assert not context.is_opened, f"context.opened is sent once for {context_id!r}"
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

    def audio(self, context_id: str, pcm: bytes, sample_offset: int) -> WireMessages:
        """The next audio of a context, in the transport that its client chose.

        Args:
            context_id: a context whose `context.opened` has been sent.
            pcm: 1 to 4,096 bytes in the context's encoding and sample rate.
            sample_offset: position of the first sample, at the output rate; the end of the audio
                before it.
        """
        context = self._opened_context(context_id)
        message = context.next_audio(pcm, sample_offset)
        if context.audio.transport == "binary":
            return self._dialect.write(message)
        return self._dialect.write(AudioBase64Message.of(context_id, message))

    def words(self, context_id: str, words: Sequence[WordTimestamp]) -> WireMessages:
        """The next words of a context; their positions are samples at 24 kHz."""
        self._opened_context(context_id).record_words(words)
        return self._dialect.write(WordsMessage.of(words, context_id=context_id))

    def words_moved(self, context_id: str, words: Sequence[WordTimestamp]) -> WireMessages:
        """Better times of words that were sent."""
        self._opened_context(context_id)
        return self._dialect.write(WordsMovedMessage.of(words, context_id=context_id))

    def flushed(self, context_id: str, flush_id: int, audio_ms: int) -> WireMessages:
        """All audio of the text before the flush has been sent; it ends at `audio_ms`."""
        self._opened_context(context_id).record_flushed(flush_id)
        message = FlushedMessage(context_id=context_id, flush_id=flush_id, audio_ms=audio_ms)
        return self._dialect.write(message)

    def warning(self, context_id: str, code: WarningCode, message: str) -> WireMessages:
        """Output is degraded; `message` says why, and what to do."""
        self._opened_context(context_id)
        return self._dialect.write(
            WarningMessage(context_id=context_id, code=code, message=message)
        )

    def cancelled(self, context_id: str, cut: Cut, basis: Basis) -> WireMessages:
        """Answer to `cancel`; only `done` may follow."""
        context = self._context_for_sending(context_id)
        assert context.is_cancel_requested, f"the client did not cancel {context_id!r}"
        context.state = WireState.CANCELLED
        message = CancelledMessage(
            context_id=context_id,
            text_spoken=cut.text_spoken,
            text_remaining=cut.text_remaining,
            partial=cut.is_partial,
            audio_sent_ms=context.audio_sent_ms,
            basis=basis,
        )
        return self._dialect.write(message)

    def cut(self, context_id: str, cut: Cut) -> WireMessages:
        """Answer to `cut`, before or after the context's `done`."""
        assert context_id in self._contexts, f"{context_id!r} was never opened"
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
        provenance: ProvenanceFields | None = None,
    ) -> WireMessages:
        """Last message of a context; follows the `error` of a context that could not be opened."""
        context = self._contexts.remove(context_id)
        is_cancelled = context.state is WireState.CANCELLED
        assert is_cancelled == (reason == "cancelled"), reason
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
        return self._dialect.write(message)

    def error(self, error: VoiceAgentError, context_id: str | None = None) -> WireMessages:
        """Report `error`; if it ends the context, send `done` with reason `error` next."""
        return self._dialect.write(ErrorMessage.of(error, context_id))

    def refused(self, error: RefusedMessageError) -> WireMessages:
        """Answer to a message that `receive` refused: `error`, and `done` for a refused open."""
        answer = self.error(error, error.context_id)
        if error.refuses_open and error.context_id is not None:
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

    def draining(self, deadline_ms: int) -> WireMessages:
        """The server is going to close the socket; from now on `receive` refuses new contexts."""
        self._is_draining = True
        return self._dialect.write(DrainingMessage(deadline_ms=deadline_ms))

    def pong(self, t: int) -> WireMessages:
        """Answer to `ping`."""
        return self._dialect.write(PongMessage(t=t))

    def _context_for_sending(self, context_id: str) -> "ServerContext":
        """The context; asserts that a message other than `done` may be sent for it."""
        assert self._is_ready, "ready is sent first"
        context = self._contexts[context_id]
        is_cancelled = context.state is WireState.CANCELLED
        assert not is_cancelled, f"only done may follow cancelled of {context_id!r}"
        return context

    def _opened_context(self, context_id: str) -> "ServerContext":
        """The context; asserts that its `context.opened` has been sent, and not `cancelled`."""
        context = self._context_for_sending(context_id)
        assert context.is_opened, f"context.opened of {context_id!r} is sent first"
        return context


@dataclass(slots=True)
class ServerContext:
    """A context without its `done`. What is sent for it is checked and counted here."""

    handle: int
    audio: AudioFormat
    state: WireState = WireState.OPEN
    is_opened: bool = False  # `context.opened` has been sent
    has_end: bool = False  # `end` was received; a second one is ignored, even after `cancel`
    messages_sent: int = 0
    samples_sent: int = 0  # at the output rate
    flush_received: int = -1
    flush_sent: int = -1
    char_end: int = 0  # of the last word sent
    start_sample: int = 0  # of the last word sent

    @property
    def is_cancel_requested(self) -> bool:
        """Whether the client sent `cancel`; the context no longer counts against the maximum."""
        return self.state in (WireState.CANCELLING, WireState.CANCELLED)

    @property
    def audio_sent_ms(self) -> int:
        """Length of the audio sent."""
        return self.audio.samples_to_ms(self.samples_sent)

    def next_audio(self, pcm: bytes, sample_offset: int) -> AudioMessage:
        """Count the next audio, and return its message."""
        assert 0 < len(pcm) <= MAX_MESSAGE_PCM_BYTES, len(pcm)
        assert len(pcm) % self.audio.bytes_per_sample == 0, (len(pcm), self.audio.encoding)
        assert sample_offset == self.samples_sent, (sample_offset, self.samples_sent)
        message = AudioMessage(self.handle, self.messages_sent, sample_offset, pcm)
        self.messages_sent += 1
        self.samples_sent += len(pcm) // self.audio.bytes_per_sample
        return message

    def record_words(self, words: Sequence[WordTimestamp]) -> None:
        """Record the next words sent; each follows the one before it in text and time."""
        for timestamp in words:
            word = timestamp.word
            assert self.char_end <= word.char_start < word.char_end, timestamp
            assert self.start_sample <= timestamp.start_sample, timestamp
            self.char_end, self.start_sample = word.char_end, timestamp.start_sample

    def record_flushed(self, flush_id: int) -> None:
        """Record the answer to a flush; answers are in order."""
        assert self.flush_sent < flush_id <= self.flush_received, flush_id
        self.flush_sent = flush_id


class ServerContexts:
    """Keeps the contexts of one socket, and refuses an open where there are too many.

    An id stays in the collection after its context has ended, as a tombstone, so that late messages
    for the context are refused and the id cannot be opened again.

    Args:
        max_contexts: number of contexts open at once; cancelled ones do not count.
        max_tombstones: number of ids of ended contexts to remember, the newest.
    """

    def __init__(self, max_contexts: int, max_tombstones: int) -> None:
        self._max_contexts = max_contexts
        self._max_tombstones = max_tombstones
        self._contexts: dict[str, ServerContext] = {}
        self._tombstones = bytearray()  # hashes of ids, oldest first; ids may have any length
        self._handles_used = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the contexts without their `done`, oldest first."""
        return tuple(self._contexts)

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._contexts or _hash(context_id) in self._tombstones

    def __getitem__(self, context_id: str) -> ServerContext:
        return self._contexts[context_id]

    def find(self, context_id: str) -> ServerContext | None:
        """The context, or None if it has ended or never was."""
        return self._contexts.get(context_id)

    def accepting_text(self, context_id: str) -> ServerContext:
        """The context, if more text may be sent to it.

        Raises:
            RefusedMessageError: it was never opened, or accepts no more text.
        """
        if context_id not in self:
            raise context_not_found(context_id)
        context = self._contexts.get(context_id)
        if context is None or context.state is not WireState.OPEN:
            raise context_closed(context_id)
        return context

    def add(self, context_id: str, audio: AudioFormat) -> None:
        """Add a new context.

        Raises:
            RefusedMessageError: the socket has too many contexts, or has used all its handles.
        """
        self._refuse_if_full(context_id)
        self._handles_used += 1
        self._contexts[context_id] = ServerContext(self._handles_used, audio)

    def _refuse_if_full(self, context_id: str) -> None:
        active = sum(not context.is_cancel_requested for context in self._contexts.values())
        if self._handles_used == MAX_HANDLE:
            self.refuse_open(context_id, ErrorCode.DRAINING, NO_MORE_CONTEXTS)
        if active >= self._max_contexts:
            self.refuse_open(
                context_id,
                ErrorCode.TOO_MANY_CONTEXTS,
                f"expected at most {self._max_contexts} contexts open on one socket",
            )
        if len(self._contexts) >= self._max_contexts + self._max_tombstones:
            self.refuse_open(
                context_id,
                ErrorCode.TOO_MANY_CONTEXTS,
                "too many cancelled contexts wait for their `done`; read the socket",
            )

    def refuse_open(self, context_id: str, code: ErrorCode, sentence: str) -> NoReturn:
        """Refuse to open a context; its id is spent."""
        self.add_tombstone(context_id)
        raise RefusedMessageError(sentence, code=code, context_id=context_id, refuses_open=True)

    def remove(self, context_id: str) -> ServerContext:
        """Remove a context that has ended, and remember its id."""
        context = self._contexts.pop(context_id)
        self.add_tombstone(context_id)
        return context

    def add_tombstone(self, context_id: str) -> None:
        """Remember an id that must not be opened again; forget the oldest one beyond the limit."""
        self._tombstones += _hash(context_id)
        del self._tombstones[: -self._max_tombstones * _HASH_BYTES]


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
