"""Pocket TTS as an engine: segments in, audio out, one frame of the neediest rows at a time.

Each `Submit` or `Append` with text is one segment, which its language's model speaks. One step
makes one frame (80 ms) of as many rows as there are threads: rows that listeners wait for come
first, then those whose playout ends soonest, and batch contexts last. All rows share the weights of
a model. Word times are left to the aligners: the models report none.

This module knows no socket, no clock and no process; one thread must use it.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.core import SAMPLE_RATE_HZ, AudioChunk, WarningCode
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.pocket.speech import Speech
from voiceagent_tts.pocket.states import PocketModel, State, VoiceStates
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
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
    Warned,
)
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken

_logger = logging.getLogger(__name__)

_SILENCE = 33  # of 32,767: -60 dBFS
_POLL_S = 0.02
"""Time until a row looks again whether its voice is loaded."""


@dataclass(frozen=True, slots=True)
class _QueuedSegment:
    """A segment that waits to be spoken.

    Attributes:
        text: what is spoken; empty if there is nothing to speak.
        char_end: end of the segment in the context's text.
        model: the model of its language.
        state: the voice for this model, perhaps still being loaded.
    """

    text: str
    char_end: int
    model: PocketModel
    state: Future[State]


@dataclass(slots=True)
class _Row:
    """The state of one context.

    Attributes:
        context: number of the context.
        voice: name of its voice.
        options: what the client chose about the speech.
        expects_text: whether more text may follow.
        queue: segments that are not spoken to their end; `speech` speaks the first one.
        speech: the audio of the first segment; None before its first frame.
        end_sample: end of the audio sent so far, on the context's clock.
        samples_wanted: audio that the credit allows, from the context's first sample.
        playback_start: time in seconds at which playback without gaps would have begun.
    """

    context: int
    voice: str
    options: SpeechOptions
    expects_text: bool = True
    queue: deque[_QueuedSegment] = field(default_factory=deque[_QueuedSegment])
    speech: Speech | None = None
    end_sample: int = 0
    samples_wanted: int = 0
    playback_start: float = 0.0

    @property
    def wants_frame(self) -> bool:
        return bool(self.queue) and self.end_sample < self.samples_wanted

    @property
    def can_speak(self) -> bool:
        return self.wants_frame and self.queue[0].state.done()

    @property
    def urgency(self) -> tuple[bool, bool, float]:
        """Sort key: listeners before files, rows without audio first, then by end of playout."""
        deadline = self.playback_start + self.end_sample / SAMPLE_RATE_HZ
        has_audio = self.end_sample > 0
        return self.options.is_batch, has_audio, deadline if has_audio else 0.0

    def begin(self) -> Speech:
        """Return the speech of the first segment, which starts with its first frame."""
        if self.speech is None:
            segment = self.queue[0]
            self.speech = Speech(segment.model.network, segment.state.result(), segment.text)
        return self.speech

    def audible(self, pcm: bytes) -> bytes:
        """Return `pcm`, without the silent frames before the context's first sound."""
        is_lead = self.end_sample == 0 and not self.options.keeps_silence
        return b"" if is_lead and max(frame_peaks(pcm)) < _SILENCE else pcm

    def append(self, pcm: bytes) -> AudioChunk:
        """Return the next audio of the context."""
        chunk = AudioChunk(self.end_sample, pcm)
        self.end_sample = chunk.end_sample
        return chunk

    def close(self) -> None:
        """End the speech, if there is one."""
        if self.speech is not None:
            self.speech.cancel()


class PocketEngine:
    """Implements `seam.engine.Engine` with models of Pocket TTS.

    It has no use for `seed`, `speed` and `initial_frames`, and ignores them: the random numbers of
    all rows come from one source. It ignores `instruct` with a warning.

    Args:
        inbox: source of commands.
        outbox: destination of events.
        models: the models, one for each language; text in other languages goes to the first.
        states: the voices.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.
        threads: rows whose frames are computed at the same time.
    """

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        models: Sequence[PocketModel],
        states: VoiceStates,
        *,
        max_rows: int,
        threads: int,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._models = list(models)
        self._states = states
        self._max_rows = max_rows
        self._threads = threads
        self._rows: dict[int, _Row] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Voices, languages and features of this engine."""
        can_clone = all(model.network.has_voice_cloning for model in self._models)
        return Capabilities(
            engine="pocket",
            model=f"pocket-tts {', '.join(model.key for model in self._models)}",
            has_native_words=False,
            text_feeding=("segment",),
            languages=tuple(model.language for model in self._models),
            voices=tuple(voice.name for voice in self._states.details),
            max_rows=self._max_rows,
            clone_width=self._models[0].network.flow_lm.dim if can_clone else None,
            voice_details=self._states.details,
        )

    @property
    def rows_used(self) -> int:
        """Number of open contexts."""
        return len(self._rows)

    @property
    def metrics(self) -> dict[str, float]:
        """Empty: this engine has no metrics beyond those of every worker."""
        return {}

    def step(self) -> float | None:
        """Handle commands, and make one frame of the rows that need it most.

        Returns:
            0.0 if rows have credit for more, a short time if one waits for its voice to be loaded,
            None if the process can wait for commands.
        """
        for command in self._inbox():
            self._handle(command)
        ready = [row for row in self._rows.values() if row.can_speak]
        ready.sort(key=lambda row: row.urgency)
        self._speak(ready[: self._threads])
        if any(row.can_speak for row in self._rows.values()):
            return 0.0
        return _POLL_S if any(row.wants_frame for row in self._rows.values()) else None

    def close(self) -> None:
        """Drop every row and the loader of voices."""
        for row in self._rows.values():
            row.close()
        self._rows.clear()
        self._states.close()

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
            raise OverloadedError(f"all {self._max_rows} rows of this engine are in use")
        row = _Row(command.context, command.voice, command.options)
        self._rows[command.context] = row
        if command.options.instruct:
            code = WarningCode.INSTRUCT_IGNORED
            self._outbox(Warned(command.context, code, INSTRUCT_IGNORED))
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

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        model = self._model_for(command.language)
        state = self._states.find(row.voice, model)
        if command.text:
            spoken = said(command.text, command.char_base, command.readings).text
            char_end = command.char_base + len(command.text)
            text = spoken if is_spoken(spoken) else ""
            row.queue.append(_QueuedSegment(text, char_end, model, state))
        row.expects_text = command.more
        self._report_progress(row)

    def _model_for(self, language: str | None) -> PocketModel:
        code = (language or "").partition("-")[0]
        matching = (model for model in self._models if model.language == code)
        return next(matching, self._models[0])

    def _credit(self, command: Credit) -> None:
        row = self._rows.get(command.context)
        if row is not None:
            row.playback_start = command.playout_end - row.end_sample / SAMPLE_RATE_HZ
            row.samples_wanted = max(row.samples_wanted, command.samples_wanted)

    def _prepare(self, command: Prepare) -> None:
        """Load a voice that will be used soon; an unknown voice fails when it is submitted."""
        try:
            self._states.find(command.voice, self._model_for(command.language))
        except InvalidRequestError:
            return

    def _speak(self, rows: Sequence[_Row]) -> None:
        """Make one frame of each of `rows`, all at the same time, and send what can be heard."""
        begun: list[_Row] = []
        for row in rows:
            with self._failing(row.context):
                row.begin().start_frame()
                begun.append(row)
        chunks = [chunk for row in begun if (chunk := self._next_chunk(row)) is not None]
        if chunks:
            self._outbox(AudioStep(tuple(chunks)))
        for row in begun:
            if row.speech is None and row.context in self._rows:
                self._end_segment(row)
                self._report_progress(row)

    def _next_chunk(self, row: _Row) -> ContextAudio | None:
        """Wait for the row's frame; without one, its speech has ended, and becomes None."""
        assert row.speech is not None, row.context
        with self._failing(row.context):
            pcm = row.speech.next_frame()
            if pcm is None:
                row.speech = None
            elif heard := row.audible(pcm):
                return ContextAudio(row.context, row.append(heard))
        return None

    def _report_progress(self, row: _Row) -> None:
        """Report what is complete: segments without anything to speak, and the context."""
        while row.queue and not row.queue[0].text:
            self._end_segment(row)
        if not row.queue and not row.expects_text:
            del self._rows[row.context]
            self._outbox(Done(row.context, row.end_sample))

    def _end_segment(self, row: _Row) -> None:
        segment = row.queue.popleft()
        self._outbox(SegmentEnd(row.context, segment.char_end, row.end_sample))

    @contextmanager
    def _failing(self, context: int) -> Iterator[None]:
        """Turn an error into the failure of one context; the others continue."""
        try:
            yield
        except VoiceAgentError as error:
            self._fail(context, error)
        except Exception as error:
            failure = EngineError.of("Pocket TTS", error)
            _logger.error("context %d: %s", context, failure)
            self._fail(context, failure)

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._drop(context)
        self._outbox(Failed(context, error.code, error.message))

    def _drop(self, context: int) -> None:
        row = self._rows.pop(context, None)
        if row is not None:
            row.close()
