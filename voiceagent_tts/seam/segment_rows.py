"""The rows of an engine that speaks whole segments: opened, fed, credited, cancelled, failed.

Engines that are fed token by token schedule differently, and have no use for it. This module knows
no voice and no audio.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, WarningCode
from voiceagent_tts.errors import (
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.seam.commands import (
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
    INSTRUCT_IGNORED,
    Cancelled,
    Done,
    Failed,
    SegmentEnd,
    Warned,
)
from voiceagent_tts.seam.failing import failing


@dataclass(slots=True, kw_only=True)
class SegmentRow:
    """What every such engine knows of a context.

    Attributes:
        context: number of the context.
        voice_name: name of its voice, as in `Submit`.
        options: what the client chose about the speech.
        expects_text: whether more text may follow.
        end_sample: end of the audio sent so far, on the context's clock.
        samples_wanted: audio that the credit allows, from the context's first sample.
        playback_start: time in seconds at which playback without gaps would have begun.
    """

    context: int
    voice_name: str
    options: SpeechOptions
    expects_text: bool = True
    end_sample: int = 0
    samples_wanted: int = 0
    playback_start: float = 0.0

    @property
    def has_credit(self) -> bool:
        """Whether the listener wants more audio than was sent."""
        return self.end_sample < self.samples_wanted

    @property
    def urgency(self) -> tuple[bool, bool, float]:
        """Sort key: listeners before files, rows without audio first, then by end of playout.

        The end of playout moves with every chunk, not only with credit; otherwise a row that is far
        ahead would count as urgent until its next credit.
        """
        has_audio = self.end_sample > 0
        deadline = self.playback_start + self.end_sample / SAMPLE_RATE_HZ
        return self.options.is_batch, has_audio, deadline if has_audio else 0.0

    def append(self, pcm: bytes) -> AudioChunk:
        """Return the next audio of the context."""
        chunk = AudioChunk(self.end_sample, pcm)
        self.end_sample = chunk.end_sample
        return chunk

    def close(self) -> None:
        """Stop what makes audio for the row, if anything does; idempotent."""


Row = TypeVar("Row", bound=SegmentRow)


class SegmentRows(Generic[Row]):
    """Handles the commands of one engine, and keeps its rows.

    Args:
        inbox: source of commands.
        outbox: destination of events.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.
        engine_name: name of the engine in errors.
        open_row: makes the row of a new context; its text is then added.
        add_text: queues the text of a command, sets `expects_text`, reports what is complete.
        prepare: loads a voice that will be used soon.
        takes_instruct: whether instructions have an effect; without, they are ignored with a
            warning.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        *,
        max_rows: int,
        engine_name: str,
        open_row: Callable[[Submit], Row],
        add_text: Callable[[Row, Submit | Append], None],
        prepare: Callable[[Prepare], None],
        takes_instruct: bool = False,
    ) -> None:
        self.max_rows = max_rows
        self._inbox = inbox
        self._outbox = outbox
        self._engine_name = engine_name
        self._open_row = open_row
        self._add_text = add_text
        self._prepare = prepare
        self._takes_instruct = takes_instruct
        self._rows: dict[int, Row] = {}

    def __iter__(self) -> Iterator[Row]:
        """The rows, in the order in which they were opened."""
        return iter(self._rows.values())

    def __len__(self) -> int:
        """Number of open contexts."""
        return len(self._rows)

    def __contains__(self, row: Row) -> bool:
        """Whether the row is still open."""
        return self._rows.get(row.context) is row

    def handle_commands(self) -> None:
        """Handle all commands that have arrived."""
        for command in self._inbox():
            self._handle(command)

    def warn(self, row: Row, code: WarningCode, message: str) -> None:
        """Tell the client that something was ignored."""
        self._outbox(Warned(row.context, code, message))

    def end_segment(self, row: Row, char_end: int) -> None:
        """Report that the audio of a segment is complete; it ends at `char_end` in the text."""
        self._outbox(SegmentEnd(row.context, char_end, row.end_sample))

    def end(self, row: Row) -> None:
        """Report that all audio of a context was sent, and free its row."""
        del self._rows[row.context]
        self._outbox(Done(row.context, row.end_sample))

    def failing(self, context: int) -> AbstractContextManager[None]:
        """Turn an error into the failure of one context; the others continue."""
        return failing(self._engine_name, (context,), self._fail)

    def clear(self) -> None:
        """Drop every row."""
        for context in list(self._rows):
            self._drop(context)

    def _handle(self, command: Command) -> None:
        match command:
            case Submit():
                with self.failing(command.context):
                    self._submit(command)
            case Append():
                with self.failing(command.context):
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
        if len(self._rows) >= self.max_rows:
            raise OverloadedError(f"all {self.max_rows} rows of {self._engine_name} are in use")
        row = self._rows[command.context] = self._open_row(command)
        if command.options.instruct and not self._takes_instruct:
            self.warn(row, WarningCode.INSTRUCT_IGNORED, INSTRUCT_IGNORED)
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

    def _credit(self, command: Credit) -> None:
        row = self._rows.get(command.context)
        if row is not None:
            row.playback_start = command.playout_end - row.end_sample / SAMPLE_RATE_HZ
            row.samples_wanted = command.samples_wanted

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._drop(context)
        self._outbox(Failed(context, error.code, error.message, error.retry_after_ms))

    def _drop(self, context: int) -> None:
        row = self._rows.pop(context, None)
        if row is not None:
            row.close()
