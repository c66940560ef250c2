"""The embedded voice as an engine: segments in, words and audio out, scheduled fairly.

Each `Submit` or `Append` with text is one segment. Its pieces are spoken one by one, each as a
whole (a second of audio takes about a millisecond): first its words are sent, then its audio as far
as credit allows. One step speaks at most one piece of one row: first the rows without any audio,
oldest first, then those whose playout ends soonest. One thread must use it.
"""

from collections import deque
from dataclasses import dataclass

from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ, Segment, WarningCode
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.espeak.catalogue import EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.japanese import lacks_readings
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import split_pieces
from voiceagent_tts.espeak.speech import Delivery, can_say_ipa, speak
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.commands import Append, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import Capabilities
from voiceagent_tts.seam.segment_engine import SegmentEngine, SegmentRow
from voiceagent_tts.text.locales import locale_of
from voiceagent_tts.text.morphemes import japanese_tokenizer
from voiceagent_tts.text.pieces import TextPiece

NORMAL_WORDS_PER_MINUTE = 175

KANJI_WARNING = (
    "Japanese kanji are spelled out, because the server has no readings for them; where it runs, "
    f"try {install_hint('japanese')} and restart it"
)
IPA_WARNING = (
    "a pronunciation in IPA has a sound that the voice's language lacks, so the letters are read; "
    "try a respelling, or other symbols"
)

_FIRST_CHUNK_SAMPLES = FRAME_SAMPLES  # small, so that it is sent at once
_CHUNK_SAMPLES = SAMPLE_RATE_HZ
_MOST_PREPARATIONS = 64  # newer ones displace the oldest
_ROWS_PER_STEP = 16  # limits one `AudioStep` to 16 s of audio, so that new rows need not wait
_ROWS_BESIDE_NEW = 2  # limit while a row waits for its first audio: a large message would delay it


@dataclass(frozen=True, slots=True)
class _VoicedPiece(TextPiece):
    """A piece, with the voice of its language."""

    voice: EspeakVoice


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow[_VoicedPiece]):
    """The state of one context, and whether its client was warned of kanji and of IPA."""

    is_warned_of_kanji: bool = False
    is_warned_of_ipa: bool = False

    @property
    def chunk_samples(self) -> int:
        return _CHUNK_SAMPLES if self.end_sample else _FIRST_CHUNK_SAMPLES


class EspeakEngine(SegmentEngine[_Row]):
    """Implements `seam.engine.Engine` with the process's espeak-ng.

    espeak has no use for `seed`, `initial_frames` and `keeps_silence`, and ignores them; it ignores
    `instruct` with a warning. The name of a cloned voice fails as an unknown voice. The samples of
    a text are equal in every new process.

    Args:
        inbox: source of commands; also read while a piece is spoken.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    has_native_speed = True

    def __init__(self, inbox: Inbox, outbox: Outbox, *, max_rows: int = 512) -> None:
        super().__init__(inbox, outbox, name="the embedded voice", max_rows=max_rows)
        self._library = EspeakLibrary.open()
        self._catalogue = VoiceCatalogue(self._library.voices(), self._library.variants())
        self._preparations: deque[Prepare] = deque(maxlen=_MOST_PREPARATIONS)

    @property
    def capabilities(self) -> Capabilities:
        """Voices, languages and features of this engine."""
        return Capabilities(
            engine="espeak",
            model=f"espeak-ng {self._library.version}",
            has_native_words=True,
            text_feeding=("segment",),
            languages=self._catalogue.languages,
            voices=self._catalogue.names,
            max_rows=self._max_rows,
            has_native_speed=True,
            reads_ipa=True,
            has_pauses=True,
            voice_details=self._catalogue.details,
        )

    def close(self) -> None:
        """Drop every row; espeak itself stays with the process."""
        super().close()
        self._preparations.clear()

    # Commands are also handled between two chunks of a piece, when espeak must not be entered
    # again, so neither these nor `_prepare` may call the library.

    def _open_row(self, command: Submit) -> _Row:
        self._catalogue.resolve(command.voice, command.language or "en")
        return _Row(context=command.context, voice_name=command.voice, options=command.options)

    def _pieces(self, row: _Row, command: Submit | Append) -> list[_VoicedPiece]:
        voice = self._catalogue.resolve(row.voice_name, command.language or "en")
        segment = Segment(command.text, command.char_base, command.readings)
        return [
            _VoicedPiece(each.words, each.said, each.segment_end, voice)
            for each in split_pieces(segment, voice.language)
        ]

    def _prepare(self, command: Prepare) -> None:
        self._preparations.append(command)

    def _next_step_s(self) -> float | None:
        return 0.0 if self._preparations else super()._next_step_s()

    def _make_audio(self) -> None:
        """Speak one piece of the most urgent row; without one, load a voice that will be used."""
        rows = self._speaking_rows()[:1]
        for row in rows:
            with self._failing(row.context):
                self._speak(row)
        if not rows:
            self._load_next_voice()

    def _load_next_voice(self) -> None:
        if not self._preparations:
            return
        wanted = self._preparations.popleft()
        try:
            voice = self._catalogue.resolve(wanted.voice, wanted.language or "en")
        except InvalidRequestError:
            return
        self._library.load_voice(voice.identifier)
        locale_of(voice.language)  # so that the first number need not wait for its language
        if voice.reads_kana_only:
            japanese_tokenizer()  # loaded now, so that the first text need not wait for it

    def _speak(self, row: _Row) -> None:
        piece = row.queue[0]
        voice = piece.voice
        delivery = Delivery(
            voice=voice,
            words_per_minute=round(NORMAL_WORDS_PER_MINUTE * row.options.speed),
            has_end_pause=piece.ends_clause and row.has_more,
            trims_lead=row.end_sample == 0,
        )
        if voice.reads_kana_only and not row.is_warned_of_kanji:
            row.is_warned_of_kanji = lacks_readings(piece.said.text)
            if row.is_warned_of_kanji:
                self._warn(row, WarningCode.KANJI_SPELLED_OUT, KANJI_WARNING)
        if not (row.is_warned_of_ipa or can_say_ipa(piece, voice, self._library)):
            row.is_warned_of_ipa = True
            self._warn(row, WarningCode.IPA_IGNORED, IPA_WARNING)
        speech = speak(self._library, piece, delivery, lambda: self._continues(row))
        if speech is not None:
            self._send_words(row, speech.words)
            row.unsent, row.is_said = memoryview(speech.pcm), True

    def _continues(self, row: _Row) -> bool:
        self._handle_commands()
        return self._is_open(row)

    def _sendable_rows(self) -> list[_Row]:
        rows = self._rows.values()
        is_new_waiting = any(row.can_speak and not row.end_sample for row in rows)
        return super()._sendable_rows()[: _ROWS_BESIDE_NEW if is_new_waiting else _ROWS_PER_STEP]
