"""The contexts of one server socket: those that are open, and the ids of those that have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from voiceagent_tts.core import MAX_MESSAGE_PCM_BYTES, WordTimestamp
from voiceagent_tts.errors import ErrorCode
from voiceagent_tts.protocol.contexts import ContextState, context_closed, context_not_found
from voiceagent_tts.protocol.messages import AudioFormat, AudioMessage
from voiceagent_tts.protocol.refusals import RefusedMessageError

MAX_HANDLE = 0xFFFF
"""Largest handle of a context in binary messages; a socket never uses a handle twice."""

NO_MORE_CONTEXTS = "this socket accepts no more contexts; open another socket"


@dataclass(slots=True)
class ServerContext:
    """A context without its `done`. What is sent for it is checked and counted here."""

    handle: int
    audio: AudioFormat
    state: ContextState = ContextState.OPEN
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
        return self.state in (ContextState.CANCELLING, ContextState.CANCELLED)

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
        self._tombstones: dict[str, None] = {}  # oldest first
        self._handles_used = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the contexts without their `done`, oldest first."""
        return tuple(self._contexts)

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._contexts or context_id in self._tombstones

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
        if context is None or context.state is not ContextState.OPEN:
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
        """Refuse to open a context; its id is spent.

        Raises:
            RefusedMessageError: always.
        """
        self.add_tombstone(context_id)
        raise RefusedMessageError(sentence, code=code, context_id=context_id, refuses_open=True)

    def remove(self, context_id: str) -> ServerContext:
        """Remove a context that has ended, and remember its id."""
        context = self._contexts.pop(context_id)
        self.add_tombstone(context_id)
        return context

    def add_tombstone(self, context_id: str) -> None:
        """Remember an id that must not be opened again; forget the oldest one beyond the limit."""
        self._tombstones[context_id] = None
        if len(self._tombstones) > self._max_tombstones:
            del self._tombstones[next(iter(self._tombstones))]
