"""Networks that predict durations as an engine: segments in, words and audio out, part by part.

Each `Submit` or `Append` with text is one segment. Its words are sent as soon as the network knows
their durations, then its audio as far as credit allows. One step makes the next part of as many
rows as there are threads: rows that listeners wait for come first, then those whose playout ends
soonest, and batch contexts last. A part has at most two seconds, so a cancel or a new row waits no
longer than these take. One thread must use it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.core import Segment, WarningCode, Word, WordTimestamp
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.phonemes.reading import LoadedVoice, Phonemes
from voiceagent_tts.phonemes.speech import Speech
from voiceagent_tts.seam.commands import Append, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.seam.segment_engine import SegmentEngine, SegmentRow, unspoken
from voiceagent_tts.text.pieces import TextPiece, split_pieces
from voiceagent_tts.voices import name_hint

IPA_WARNING = (
    "a pronunciation in IPA has a symbol of no sound of the voice's language, so the letters are "
    "read; try a respelling, or other symbols"
)


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow[TextPiece]):
    """The state of one context.

    Attributes:
        reading: what is left to say of the first piece; None before it is read.
        speech: speaks the first piece; None between two strings of phonemes.
        is_warned: whether the client knows of IPA that the voice cannot say.
    """

    voice: LoadedVoice
    noise: np.random.Generator
    reading: Iterator[tuple[Phonemes, list[Word]]] | None = None
    speech: Speech | None = None
    is_warned: bool = False


class PhonemeEngine(SegmentEngine[_Row]):
    """Implements `seam.engine.Engine` with voices whose networks predict durations.

    It ignores `initial_frames`, and `instruct` with a warning. Equal texts with equal seeds give
    equal samples; without a seed their noise differs.

    Args:
        voices: the voices by name, the default first.
        model: name of its model, with what shapes the sound.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.
        threads: rows that are computed at the same time.
    """

    has_native_speed = True

    def __init__(
        self,
        inbox: Inbox,
        outbox: Outbox,
        voices: Mapping[str, LoadedVoice],
        *,
        name: str,
        model: str,
        max_rows: int,
        threads: int,
    ) -> None:
        super().__init__(inbox, outbox, name=name, max_rows=max_rows)
        self._model = model
        self._voices = voices
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "speech")

    @property
    def capabilities(self) -> Capabilities:
        """Voices, languages and features of this engine."""
        details = tuple(voice.details for voice in self._voices.values())
        codes = {each.language for each in details if each.language is not None}
        return Capabilities(
            engine=self._name,
            model=self._model,
            has_native_words=True,
            text_feeding=("segment",),
            languages=tuple(sorted(codes | {code.partition("-")[0] for code in codes})),
            voices=tuple(self._voices),
            max_rows=self._max_rows,
            has_native_speed=True,
            reads_ipa=True,
            has_pauses=True,
            voice_details=details,
            has_monolingual_voices=True,
        )

    def close(self) -> None:
        """Drop every row, and end the threads."""
        super().close()
        self._pool.shutdown()

    def _open_row(self, command: Submit) -> _Row:
        voice = self._voices.get(command.voice.casefold())
        if voice is None:
            raise InvalidRequestError(
                f"expected the name of a voice, got {command.voice[:64]!r}; "
                f"{name_hint(command.voice, self._voices)}",
                code=ErrorCode.INVALID_VOICE,
            )
        return _Row(
            context=command.context,
            voice_name=command.voice,
            options=command.options,
            voice=voice,
            noise=np.random.default_rng(command.options.seed),
        )

    def _pieces(self, row: _Row, command: Submit | Append) -> list[TextPiece]:
        pieces = list(split_pieces(Segment(command.text, command.char_base, command.readings)))
        self._warn_of_ipa(row, pieces)
        return pieces

    def _warn_of_ipa(self, row: _Row, pieces: Sequence[TextPiece]) -> None:
        can_say = row.voice.pronouncer.can_say
        spoken = (piece for piece in pieces if not piece.is_silent)
        if row.is_warned or all(can_say(ipa) for piece in spoken for _, ipa in piece.said.ipa):
            return
        row.is_warned = True
        self._warn(row, WarningCode.IPA_IGNORED, IPA_WARNING)

    def _make_audio(self) -> None:
        """Make a part of as many rows as there are threads, all at the same time."""
        rows = self._speaking_rows()[: self._threads]
        for row, making in [(row, self._pool.submit(_make, row)) for row in rows]:
            with self._failing(row.context):
                words, pcm = making.result()
                self._send_words(row, words)
                row.unsent, row.is_said = memoryview(pcm), not pcm


def _make(row: _Row) -> tuple[tuple[WordTimestamp, ...], bytes]:
    """Make the next audio of the row's first piece; runs on a thread, one for each row.

    Returns:
        The words whose audio begins there, and the audio; none if the piece has ended.
    """
    piece = row.queue[0]
    if row.reading is None:
        row.reading = row.voice.read(piece)
    words: tuple[WordTimestamp, ...] = ()
    while True:
        if row.speech is None:
            phonemes, given = next(row.reading, (None, []))
            if phonemes is None:
                row.reading = None
                return words, b""
            if not phonemes.sounds:
                words += unspoken(given)
                continue
            row.speech = _speech(row, phonemes, given)
        is_new = not row.speech.words
        pcm = row.speech.next_part(has_pause=piece.ends_clause and row.has_more)
        if pcm:
            return words + (row.speech.words if is_new else ()), pcm
        row.speech = None


def _speech(row: _Row, phonemes: Phonemes, words: Sequence[Word]) -> Speech:
    return Speech(
        row.voice.network,
        phonemes,
        words,
        speed=row.options.speed,
        noise=row.noise,
        trims_lead=row.end_sample > 0 or not row.options.keeps_silence,
    )
