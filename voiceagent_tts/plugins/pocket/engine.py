"""Pocket TTS as an engine: segments in, audio out, one frame of the most urgent rows at a time.

Each `Submit` or `Append` with text is one segment, which its language's model speaks. One step
makes one frame (80 ms) of as many rows as there are threads: rows that listeners wait for come
first, then those whose playout ends soonest, and batch contexts last. All rows share the weights of
a model. Word times are left to the aligners: the models report none. One thread must use it.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from voiceagent_tts.audio.levels import frame_peaks
from voiceagent_tts.core import Segment
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.pocket.speech import Speech
from voiceagent_tts.plugins.pocket.states import PocketModel, State, VoiceStates
from voiceagent_tts.seam.commands import Append, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.seam.segment_engine import SegmentEngine, SegmentRow
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.pieces import TextPiece, split_pieces
from voiceagent_tts.text.words import is_spoken

_SILENCE = 33  # of 32,767: -60 dBFS


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a segment that waits to be spoken.

    Attributes:
        segment_end: end of the segment in the context's text if this is its last part, else None.
        state: the voice for this model, perhaps still being loaded.
    """

    text: str
    segment_end: int | None
    model: PocketModel
    state: Future[State]

    words = ()

    @property
    def is_silent(self) -> bool:
        return not is_spoken(self.text)


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow[_Part]):
    """The state of one context.

    Attributes:
        voice_version: version of the clone that it began with, as in `Submit`.
        states: its voice for each model that has spoken, by the model's key.
        speech: the audio of the first part; None before its first frame.
    """

    voice_version: tuple[int, ...]
    states: dict[str, Future[State]] = field(default_factory=dict[str, Future[State]])
    speech: Speech | None = None

    @property
    def can_speak(self) -> bool:
        return self.wants_audio and self.queue[0].state.done()

    def start_frame(self) -> None:
        """Let the next frame of the first part be computed."""
        if self.speech is None:
            part = self.queue[0]
            self.speech = Speech(part.model.network, part.state.result(), part.text)
        self.speech.start_frame()

    def finish_frame(self) -> None:
        """Wait for the frame that was started; without one, the part has been said."""
        assert self.speech is not None, self.context
        pcm = self.speech.next_frame()
        if pcm is None:
            self.speech, self.is_said = None, True
        elif self.end_sample or self.options.keeps_silence or max(frame_peaks(pcm)) >= _SILENCE:
            self.unsent = memoryview(pcm)

    def close(self) -> None:
        """End the speech, if there is one."""
        if self.speech is not None:
            self.speech.cancel()


class PocketEngine(SegmentEngine[_Row]):
    """Implements `seam.engine.Engine` with models of Pocket TTS.

    It has no use for `seed`, `speed` and `initial_frames`, and ignores them: the random numbers of
    all rows come from one source. It ignores `instruct` with a warning.

    Args:
        models: the models, one for each language; text in other languages goes to the first.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.
        threads: rows whose frames are computed at the same time.
    """

    poll_s = 0.02

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
        super().__init__(inbox, outbox, name="Pocket TTS", max_rows=max_rows)
        self._models = list(models)
        self._states = states
        self._threads = threads

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
            revision="; ".join(model.revision for model in self._models),
            voice_details=self._states.details,
        )

    def close(self) -> None:
        """Drop every row and the loader of voices."""
        super().close()
        self._states.close()

    def _open_row(self, command: Submit) -> _Row:
        row = _Row(
            context=command.context,
            voice_name=command.voice,
            options=command.options,
            voice_version=command.voice_version,
        )
        self._state(row, self._model_for(command.language))
        return row

    def _state(self, row: _Row, model: PocketModel) -> Future[State]:
        """The voice of a row for a model; a row that speaks keeps it, also if it is removed."""
        if model.key not in row.states:
            state = self._states.find(row.voice_name, model, row.voice_version)
            row.states[model.key] = state
        return row.states[model.key]

    def _pieces(self, row: _Row, command: Submit | Append) -> list[_Part]:
        model = self._model_for(command.language)
        state = self._state(row, model)
        pieces = split_pieces(Segment(command.text, command.char_base, command.readings))
        return [_Part(_written(piece, model), piece.segment_end, model, state) for piece in pieces]

    def _model_for(self, language: str | None) -> PocketModel:
        code = (language or "").partition("-")[0]
        matching = (model for model in self._models if model.language == code)
        return next(matching, self._models[0])

    def _prepare(self, command: Prepare) -> None:
        try:
            model = self._model_for(command.language)
            self._states.find(command.voice, model, command.voice_version)
        except InvalidRequestError:
            return

    def _make_audio(self) -> None:
        """Make one frame of as many rows as there are threads, all at the same time."""
        begun: list[_Row] = []
        for row in self._speaking_rows()[: self._threads]:
            with self._failing(row.context):
                row.start_frame()
                begun.append(row)
        for row in begun:
            with self._failing(row.context):
                row.finish_frame()


def _written(piece: TextPiece, model: PocketModel) -> str:
    return normalize(piece.said, model.language, reads_digits=False).text
