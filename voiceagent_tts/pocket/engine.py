"""Pocket TTS as an engine: segments in, audio out, one frame of the neediest rows at a time.

Each `Submit` or `Append` with text is one segment, which its language's model speaks. One step
makes one frame (80 ms) of as many rows as there are threads: rows that listeners wait for come
first, then those whose playout ends soonest, and batch contexts last. All rows share the weights of
a model. Word times are left to the aligners: the models report none.

This module knows no socket, no clock and no process; one thread must use it.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.pocket.speech import Speech
from voiceagent_tts.pocket.states import PocketModel, State, VoiceStates
from voiceagent_tts.seam.commands import Append, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import AudioStep, Capabilities, ContextAudio
from voiceagent_tts.seam.segment_rows import SegmentRow, SegmentRows
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import said
from voiceagent_tts.text.words import is_spoken

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


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow):
    """The state of one context.

    Attributes:
        queue: segments that are not spoken to their end; `speech` speaks the first one.
        speech: the audio of the first segment; None before its first frame.
    """

    queue: deque[_QueuedSegment] = field(default_factory=deque[_QueuedSegment])
    speech: Speech | None = None

    @property
    def wants_frame(self) -> bool:
        return bool(self.queue) and self.has_credit

    @property
    def can_speak(self) -> bool:
        return self.wants_frame and self.queue[0].state.done()

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
        self._outbox = outbox
        self._models = list(models)
        self._states = states
        self._threads = threads
        self._rows = SegmentRows(
            inbox,
            outbox,
            max_rows=max_rows,
            engine_name="Pocket TTS",
            open_row=_open_row,
            add_text=self._add_text,
            prepare=self._prepare,
        )

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
            max_rows=self._rows.max_rows,
            clone_width=self._models[0].network.flow_lm.dim if can_clone else None,
            revision="; ".join(model.revision for model in self._models),
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
        self._rows.handle_commands()
        ready = [row for row in self._rows if row.can_speak]
        ready.sort(key=lambda row: row.urgency)
        self._speak(ready[: self._threads])
        if any(row.can_speak for row in self._rows):
            return 0.0
        return _POLL_S if any(row.wants_frame for row in self._rows) else None

    def close(self) -> None:
        """Drop every row and the loader of voices."""
        self._rows.clear()
        self._states.close()

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        model = self._model_for(command.language)
        state = self._states.find(row.voice_name, model)
        if command.text:
            written = said(command.text, command.char_base, command.readings)
            spoken = normalize(written, model.language, reads_digits=False).text
            char_end = command.char_base + len(command.text)
            text = spoken if is_spoken(spoken) else ""
            row.queue.append(_QueuedSegment(text, char_end, model, state))
        row.expects_text = command.more
        self._report_progress(row)

    def _model_for(self, language: str | None) -> PocketModel:
        code = (language or "").partition("-")[0]
        matching = (model for model in self._models if model.language == code)
        return next(matching, self._models[0])

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
            with self._rows.failing(row.context):
                row.begin().start_frame()
                begun.append(row)
        chunks = [chunk for row in begun if (chunk := self._next_chunk(row)) is not None]
        if chunks:
            self._outbox(AudioStep(tuple(chunks)))
        for row in begun:
            if row.speech is None and row in self._rows:
                self._end_segment(row)
                self._report_progress(row)

    def _next_chunk(self, row: _Row) -> ContextAudio | None:
        """Wait for the row's frame; without one, its speech has ended, and becomes None."""
        assert row.speech is not None, row.context
        with self._rows.failing(row.context):
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
            self._rows.end(row)

    def _end_segment(self, row: _Row) -> None:
        self._rows.end_segment(row, row.queue.popleft().char_end)


def _open_row(command: Submit) -> _Row:
    return _Row(context=command.context, voice_name=command.voice, options=command.options)
