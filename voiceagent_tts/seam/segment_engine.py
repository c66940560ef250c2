"""The base of engines that speak whole segments: their commands, rows, credit and events.

A subclass divides text into pieces and makes their audio. The pieces of a row are spoken in order:
first the words of a piece are sent, where the engine knows them, then its audio as far as credit
allows. Engines that are fed token by token schedule differently and do not use it.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    AudioChunk,
    WarningCode,
    Word,
    WordTimestamp,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError, OverloadedError, VoiceAgentError
from voiceagent_tts.seam.commands import (
    MAX_NATIVE_SPEED,
    MIN_NATIVE_SPEED,
    Append,
    Cancel,
    Command,
    Credit,
    Flush,
    Prepare,
    SpeechOptions,
    Submit,
)
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
    Warned,
    Words,
)
from voiceagent_tts.seam.failing import failing

_INSTRUCT_IGNORED = (
    "this voice follows no instruction, so `instruct` has no effect; leave it out, or choose a "
    "voice whose `takes_instruct` is true in GET /v1/audio/voices"
)

UNSPOKEN_CONFIDENCE = 0.9
"""Of a word without a sound, such as one in another script."""


class Piece(Protocol):
    """A part of a segment that an engine speaks at once: a clause or a sentence."""

    @property
    def words(self) -> Sequence[Word]:
        """The client's words in it, if the engine reports words."""
        ...

    @property
    def segment_end(self) -> int | None:
        """End of the segment in the context's text if this is its last piece, else None."""
        ...

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to say."""
        ...


P = TypeVar("P", bound=Piece)


@dataclass(slots=True, kw_only=True)
class SegmentRow(Generic[P]):
    """State of one context, common to all engines that speak whole segments.

    Positions are samples on the context's clock.
    """

    context: int
    voice_name: str  # as in `Submit`
    options: SpeechOptions
    queue: deque[P] = field(default_factory=deque[P])  # pieces that are not spoken to their end
    is_said: bool = False  # whether all audio of the first piece was made
    unsent: memoryview = memoryview(b"")  # PCM of the first piece that waits for credit
    expects_text: bool = True
    has_speech: bool = False  # whether there was something to say in a piece that has ended
    end_sample: int = 0  # of the audio sent so far
    samples_wanted: int = 0  # end of the audio that the credit allows
    playback_start: float = 0.0  # in seconds, at which playback without gaps would have begun

    @property
    def has_credit(self) -> bool:
        """Whether the listener wants more audio than was sent."""
        return self.end_sample < self.samples_wanted

    @property
    def wants_audio(self) -> bool:
        """Whether audio is to be made now."""
        return bool(self.queue) and not self.unsent and self.has_credit

    @property
    def can_speak(self) -> bool:
        """Whether audio can be made now."""
        return self.wants_audio

    @property
    def can_send(self) -> bool:
        """Whether there is audio that the listener wants."""
        return bool(self.unsent) and self.has_credit

    @property
    def has_more(self) -> bool:
        """Whether something is said after the first piece, as far as is known."""
        return self.expects_text or len(self.queue) > 1

    @property
    def chunk_samples(self) -> int:
        """Most samples that are sent at once."""
        return self.samples_wanted

    @property
    def urgency(self) -> tuple[bool, bool, float]:
        """Sort key: listeners before files, rows without audio first, then by end of playout.

        The end of playout moves with every chunk, not only with credit; otherwise a row that is far
        ahead would count as urgent until its next credit.
        """
        has_audio = self.end_sample > 0
        deadline = self.playback_start + self.end_sample / SAMPLE_RATE_HZ
        return self.options.is_batch, has_audio, deadline if has_audio else 0.0

    def pop_chunk(self) -> AudioChunk:
        """Remove and return the unsent audio that the credit allows."""
        size = min(self.chunk_samples, self.samples_wanted - self.end_sample) * BYTES_PER_SAMPLE
        pcm, self.unsent = bytes(self.unsent[:size]), self.unsent[size:]
        chunk = AudioChunk(self.end_sample, pcm)
        self.end_sample = chunk.end_sample
        return chunk

    def end_piece(self) -> P:
        """Remove and return the first piece."""
        self.is_said = False
        return self.queue.popleft()

    def close(self) -> None:
        """Stop what makes audio for the row, if anything does; idempotent."""


R = TypeVar("R", bound=SegmentRow[Any])


class SegmentEngine(ABC, Generic[R]):
    """Implements `seam.engine.Engine`, but for what a voice can do and how its audio is made.

    Args:
        name: name of the engine in errors.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.

    Attributes:
        takes_instruct: whether instructions have an effect; without, they are ignored with a
            warning.
        has_native_speed: whether the voices speak at the requested speed, which is then checked.
        poll_s: time until a row that waits for its voice or its audio looks again.
    """

    takes_instruct: ClassVar[bool] = False
    has_native_speed: ClassVar[bool] = False
    poll_s: ClassVar[float] = 0.0

    def __init__(self, inbox: Inbox, outbox: Outbox, *, name: str, max_rows: int) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._name = name
        self._max_rows = max_rows
        self._rows: dict[int, R] = {}

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Voices, languages and features of this engine."""

    @property
    def rows_used(self) -> int:
        """Number of open contexts."""
        return len(self._rows)

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics beyond those of every worker; most engines have none."""
        return {}

    def step(self) -> float | None:
        """Handle commands, make audio of the most urgent rows, and send what credit allows.

        Returns:
            0.0 if there is more work, a short time if a row waits for its voice or its audio, None
            if the process can wait for commands.
        """
        self._handle_commands()
        self._make_audio()
        self._send_audio()
        for row in [row for row in self._rows.values() if row.is_said and not row.unsent]:
            self._report_progress(row)
        return self._next_step_s()

    def close(self) -> None:
        """Drop every row; idempotent."""
        for context in list(self._rows):
            self._drop(context)

    @abstractmethod
    def _open_row(self, command: Submit) -> R:
        """Make the row of a new context; its text is then added.

        Raises:
            VoiceAgentError: the voice or an option is wrong; the context fails.
        """

    @abstractmethod
    def _pieces(self, row: R, command: Submit | Append) -> Iterable[Piece]:
        """Divide the text of a command, which is not empty; raises as `_open_row`."""

    @abstractmethod
    def _make_audio(self) -> None:
        """Make the next audio of rows that can speak, and put it into `unsent`."""

    def _prepare(self, command: Prepare) -> None:
        """Load a voice that will be used soon; an unknown one fails when it is submitted."""

    def _sendable_rows(self) -> list[R]:
        """The rows whose audio is sent in this step."""
        return self._by_urgency(row for row in self._rows.values() if row.can_send)

    def _next_step_s(self) -> float | None:
        rows = self._rows.values()
        if any(row.can_speak or row.can_send for row in rows):
            return 0.0
        is_waiting = self.poll_s > 0 and any(row.wants_audio for row in rows)
        return self.poll_s if is_waiting else None

    def _speaking_rows(self) -> list[R]:
        """The rows whose audio can be made now."""
        return self._by_urgency(row for row in self._rows.values() if row.can_speak)

    @staticmethod
    def _by_urgency(rows: Iterable[R]) -> list[R]:
        return sorted(rows, key=lambda row: row.urgency)

    def _is_open(self, row: R) -> bool:
        return self._rows.get(row.context) is row

    def _warn(self, row: R, code: WarningCode, message: str) -> None:
        """Tell the client that something was ignored."""
        self._outbox(Warned(row.context, code, message))

    def _send_words(self, row: R, words: Sequence[WordTimestamp]) -> None:
        """Send words whose samples count from the end of the audio sent so far."""
        if words:
            placed = tuple(word.later(row.end_sample) for word in words)
            self._outbox(Words(row.context, placed))

    def _failing(self, context: int) -> AbstractContextManager[None]:
        """Turn an error into the failure of one context; the others continue."""
        return failing(self._name, (context,), self._fail)

    def _handle_commands(self) -> None:
        for command in self._inbox():
            self._handle(command)

    def _handle(self, command: Command) -> None:
        match command:
            case Submit():
                with self._failing(command.context):
                    self._submit(command)
            case Append():
                with self._failing(command.context):
                    self._append(command)
            case Cancel():
                self._drop(command.context)
                self._outbox(Cancelled(command.context))
            case Credit():
                self._credit(command)
            case Prepare():
                self._prepare(command)
            case Flush():
                pass  # segments are spoken as a whole, so none waits for more text

    def _submit(self, command: Submit) -> None:
        if command.context in self._rows:
            raise InvalidRequestError(
                f"context {command.context} is already open", code=ErrorCode.CONTEXT_EXISTS
            )
        if len(self._rows) >= self._max_rows:
            raise OverloadedError(f"all {self._max_rows} rows of {self._name} are in use")
        if self.has_native_speed:
            _check_speed(command.options.speed)
        row = self._rows[command.context] = self._open_row(command)
        if command.options.instruct and not self.takes_instruct:
            self._warn(row, WarningCode.INSTRUCT_IGNORED, _INSTRUCT_IGNORED)
        self._add_text(row, command)

    def _append(self, command: Append) -> None:
        row = self._rows.get(command.context)
        if row is None:  # it was cancelled or failed, and the sender does not know yet
            return
        if not row.expects_text:
            raise InvalidRequestError(
                f"context {command.context} received text after its last text",
                code=ErrorCode.CONTEXT_CLOSED,
            )
        self._add_text(row, command)

    def _add_text(self, row: R, command: Submit | Append) -> None:
        if command.text:
            row.queue += self._pieces(row, command)
        row.expects_text = command.more
        self._report_progress(row)

    def _credit(self, command: Credit) -> None:
        row = self._rows.get(command.context)
        if row is not None:
            row.playback_start = command.playout_end - row.end_sample / SAMPLE_RATE_HZ
            row.samples_wanted = command.samples_wanted

    def _send_audio(self) -> None:
        if rows := self._sendable_rows():
            chunks = tuple(ContextAudio(row.context, row.pop_chunk()) for row in rows)
            self._outbox(AudioStep(chunks))

    def _report_progress(self, row: R) -> None:
        """Report what is complete: spoken pieces, those without a sound, and the context."""
        while row.queue and not row.unsent and (row.is_said or row.queue[0].is_silent):
            piece = row.end_piece()
            row.has_speech = row.has_speech or not piece.is_silent
            if piece.is_silent:
                self._send_words(row, unspoken(piece.words))
            if piece.segment_end is not None:
                self._outbox(SegmentEnd(row.context, piece.segment_end, row.end_sample))
        if not (row.queue or row.expects_text):
            del self._rows[row.context]
            is_unspeakable = row.has_speech and row.end_sample == 0
            self._outbox(Done(row.context, row.end_sample, is_unspeakable))

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._drop(context)
        self._outbox(Failed(context, error.code, error.message, error.retry_after_ms))

    def _drop(self, context: int) -> None:
        row = self._rows.pop(context, None)
        if row is not None:
            row.close()


def unspoken(words: Iterable[Word]) -> tuple[WordTimestamp, ...]:
    """Words without a sound, which have no length."""
    return tuple(WordTimestamp(word, 0, 0, UNSPOKEN_CONFIDENCE) for word in words)


def _check_speed(speed: float) -> None:
    if not MIN_NATIVE_SPEED <= speed <= MAX_NATIVE_SPEED:
        raise InvalidRequestError(
            f"expected a speed from {MIN_NATIVE_SPEED} to {MAX_NATIVE_SPEED}; got {speed}",
            code=ErrorCode.INVALID_PARAM,
        )
