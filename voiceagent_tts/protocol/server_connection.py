"""The server's end of one `tts.v1` socket, without the socket: which messages are legal, and when.

The caller reads messages from its socket and passes them to `receive`. It sends what the other
methods return, immediately and in the order of the calls. For each context the server sends
`[opened] (audio | words | flushed | warning)* [cancelled] done`; `error`, `cut` and `pong` answer
the client and may come in between. A `protocol.dialects.dialect` decides how messages look. This
module knows no I/O, no clock, no text rules and no engine.
"""

from collections.abc import Sequence
from typing import Any

from voiceagent_tts.core import Cut, WarningCode, WordTimestamp
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.protocol.contexts import ContextState, context_exists, context_not_found
from voiceagent_tts.protocol.dialect import (
    Answer,
    Closing,
    Command,
    Dialect,
    TtsV1,
    WireMessages,
)
from voiceagent_tts.protocol.messages import (
    AudioBase64Message,
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
    SessionLimits,
    SessionUpdate,
    WarningMessage,
    WordList,
    WordsMessage,
)
from voiceagent_tts.protocol.refusals import RefusedMessageError
from voiceagent_tts.protocol.server_contexts import (
    NO_MORE_CONTEXTS,
    ServerContext,
    ServerContexts,
)

MAX_TOMBSTONES = 4_096
"""Maximum number of ids of ended contexts that a server remembers, to refuse their reuse."""


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
        context.state, context.has_end = ContextState.ENDED, True
        return [message]

    def _cancel(self, message: ContextCancel) -> list[ClientMessage]:
        if message.context_id not in self._contexts:
            raise context_not_found(message.context_id)
        context = self._contexts.find(message.context_id)
        if context is None or context.is_cancel_requested:
            return []
        context.state = ContextState.CANCELLING
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

    def flushed(self, context_id: str, flush_id: int, audio_ms: int) -> WireMessages:
        """All audio of the text before the flush has been sent; it ends at `audio_ms`."""
        self._opened_context(context_id).record_flushed(flush_id)
        message = FlushedMessage(context_id=context_id, flush_id=flush_id, audio_ms=audio_ms)
        return self._dialect.write(message)

    def warning(self, context_id: str, code: WarningCode, message: str) -> WireMessages:
        """The context is spoken worse than it could be; `message` says why, and what to do."""
        self._opened_context(context_id)
        return self._dialect.write(
            WarningMessage(context_id=context_id, code=code, message=message)
        )

    def cancelled(self, context_id: str, cut: Cut, basis: Basis) -> WireMessages:
        """Answer to `cancel`; only `done` may follow."""
        context = self._context_for_sending(context_id)
        assert context.is_cancel_requested, f"the client did not cancel {context_id!r}"
        context.state = ContextState.CANCELLED
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
        is_cancelled = context.state is ContextState.CANCELLED
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

    def _context_for_sending(self, context_id: str) -> ServerContext:
        """The context; asserts that a message other than `done` may be sent for it."""
        assert self._is_ready, "ready is sent first"
        context = self._contexts[context_id]
        is_cancelled = context.state is ContextState.CANCELLED
        assert not is_cancelled, f"only done may follow cancelled of {context_id!r}"
        return context

    def _opened_context(self, context_id: str) -> ServerContext:
        """The context; asserts that its `context.opened` has been sent, and not `cancelled`."""
        context = self._context_for_sending(context_id)
        assert context.is_opened, f"context.opened of {context_id!r} is sent first"
        return context
