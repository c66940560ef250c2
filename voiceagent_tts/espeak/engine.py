"""The embedded voice as an engine: segments in, words and audio out, scheduled fairly.

Each `Submit` or `Append` with text is one segment. Its pieces are spoken one by one, each as a
whole (a second of audio takes about a millisecond): first its words are sent, then its audio as far
as credit allows. One step speaks at most one piece of one row: first the rows without any audio,
oldest first, then those whose playout ends soonest.

This module knows no socket, no clock and no process; one thread must use it.
"""

from collections import deque
from dataclasses import dataclass, field

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Segment,
    WarningCode,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.catalogue import EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.japanese import lacks_readings
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import Piece, split_pieces
from voiceagent_tts.espeak.speech import Delivery, Speech, can_say_ipa, speak
from voiceagent_tts.extras import install_hint
from voiceagent_tts.seam.commands import (
    MAX_NATIVE_SPEED,
    MIN_NATIVE_SPEED,
    Append,
    Prepare,
    Submit,
)
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import AudioStep, Capabilities, ContextAudio, Words
from voiceagent_tts.seam.segment_rows import SegmentRow, SegmentRows
from voiceagent_tts.text.locales import locale_of
from voiceagent_tts.text.morphemes import japanese_tokenizer

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
_ROWS_PER_STEP = 16  # limits one `AudioStep` to 16 s of audio, so that new rows need not wait
_ROWS_BESIDE_NEW = 2  # limit while a row waits for its first audio: a large message would delay it


@dataclass(frozen=True, slots=True)
class _QueuedPiece:
    """A piece that waits to be spoken, with the voice of its language."""

    piece: Piece
    voice: EspeakVoice


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow):
    """The state of one context.

    Attributes:
        words_per_minute: speaking rate.
        queue: pieces that are not spoken yet.
        current: the piece whose audio is being sent.
        unsent: PCM of `current` that waits for credit.
        is_warned_of_kanji: whether the client knows that kanji are spelled out.
        is_warned_of_ipa: whether the client knows of IPA that the voice cannot say.
    """

    words_per_minute: int
    queue: deque[_QueuedPiece] = field(default_factory=deque[_QueuedPiece])
    current: Piece | None = None
    unsent: memoryview = memoryview(b"")
    is_warned_of_kanji: bool = False
    is_warned_of_ipa: bool = False

    @property
    def can_speak(self) -> bool:
        return self.current is None and bool(self.queue) and self.has_credit

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.has_credit

    @property
    def is_done(self) -> bool:
        return not (self.expects_text or self.queue or self.current)

    def pop_chunk(self) -> AudioChunk:
        """Remove and return the next chunk of the unsent audio."""
        limit = _CHUNK_SAMPLES if self.end_sample else _FIRST_CHUNK_SAMPLES
        size = min(limit, self.samples_wanted - self.end_sample) * BYTES_PER_SAMPLE
        pcm, self.unsent = bytes(self.unsent[:size]), self.unsent[size:]
        return self.append(pcm)


class EspeakEngine:
    """Implements `seam.engine.Engine` with the process's espeak-ng.

    espeak has no use for `seed`, `initial_frames` and `keeps_silence`, and ignores them; it ignores
    `instruct` with a warning. The name of a cloned voice fails as an unknown voice. The samples of
    a text are equal in every new process.

    Args:
        inbox: source of commands; also read while a piece is spoken.
        outbox: destination of events.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    def __init__(self, inbox: Inbox, outbox: Outbox, *, max_rows: int = 512) -> None:
        self._outbox = outbox
        self._library = EspeakLibrary.open()
        self._catalogue = VoiceCatalogue(self._library.voices(), self._library.variants())
        self._preparations: deque[Prepare] = deque()
        # Commands are also handled between two chunks of a piece, when espeak must not be entered
        # again, so none of these may call the library.
        self._rows = SegmentRows(
            inbox,
            outbox,
            max_rows=max_rows,
            engine_name="the embedded voice",
            open_row=_open_row,
            add_text=self._add_text,
            prepare=self._preparations.append,
        )

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
            max_rows=self._rows.max_rows,
            has_native_speed=True,
            reads_ipa=True,
            has_pauses=True,
            voice_details=self._catalogue.details,
        )

    @property
    def rows_used(self) -> int:
        """Number of open contexts."""
        return len(self._rows)

    @property
    def metrics(self) -> dict[str, float]:
        """Empty: the embedded voice has no metrics beyond those of every worker."""
        return {}

    def step(self) -> float | None:
        """Handle commands, speak at most one piece, and send the audio that credit allows.

        Returns:
            0.0 if there is more work, None if the process can wait for commands.
        """
        self._rows.handle_commands()
        self._prepare()
        row = min(
            (row for row in self._rows if row.can_speak),
            key=lambda row: row.urgency,
            default=None,
        )
        if row is not None:
            self._speak(row)
        self._send_audio()
        has_work = any(row.can_speak or row.can_send for row in self._rows)
        return 0.0 if has_work or self._preparations else None

    def close(self) -> None:
        """Drop every row; espeak itself stays with the process."""
        self._rows.clear()
        self._preparations.clear()

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        voice = self._catalogue.resolve(row.voice_name, command.language or "en")
        if command.text:
            segment = Segment(command.text, command.char_base, command.readings)
            pieces = split_pieces(segment, voice.language)
            row.queue.extend(_QueuedPiece(piece, voice) for piece in pieces)
        row.expects_text = command.more
        self._report_progress(row)

    def _prepare(self) -> None:
        """Load a voice that will be used soon; an unknown voice fails when it is submitted."""
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
        queued = row.queue[0]  # stays queued while it is spoken: commands may read the row
        delivery = Delivery(
            voice=queued.voice,
            words_per_minute=row.words_per_minute,
            has_end_pause=queued.piece.ends_clause and (row.expects_text or len(row.queue) > 1),
            trims_lead=row.end_sample == 0,
        )
        with self._rows.failing(row.context):
            if queued.voice.reads_kana_only and not row.is_warned_of_kanji:
                self._warn_of_kanji(row, queued.piece.spoken.text)
            if not (row.is_warned_of_ipa or can_say_ipa(queued.piece, queued.voice, self._library)):
                row.is_warned_of_ipa = True
                self._rows.warn(row, WarningCode.IPA_IGNORED, IPA_WARNING)
            speech = speak(self._library, queued.piece, delivery, lambda: self._continues(row))
            if speech is not None:
                row.queue.popleft()
                self._begin(row, queued.piece, speech)
                self._report_progress(row)

    def _warn_of_kanji(self, row: _Row, text: str) -> None:
        if lacks_readings(text):
            row.is_warned_of_kanji = True
            self._rows.warn(row, WarningCode.KANJI_SPELLED_OUT, KANJI_WARNING)

    def _continues(self, row: _Row) -> bool:
        """Handle commands while `row` is spoken; return False if one of them ended it."""
        self._rows.handle_commands()
        return row in self._rows

    def _begin(self, row: _Row, piece: Piece, speech: Speech) -> None:
        """Send a piece's words and queue its audio after all audio of the row."""
        words = tuple(word.later(row.end_sample) for word in speech.words)
        if words:
            self._outbox(Words(row.context, words))
        row.current, row.unsent = piece, memoryview(speech.pcm)

    def _send_audio(self) -> None:
        waiting = (row for row in self._rows if row.can_send)
        is_new_waiting = any(row.can_speak and not row.end_sample for row in self._rows)
        limit = _ROWS_BESIDE_NEW if is_new_waiting else _ROWS_PER_STEP
        rows = sorted(waiting, key=lambda row: row.urgency)[:limit]
        if not rows:
            return
        self._outbox(AudioStep(tuple(ContextAudio(row.context, row.pop_chunk()) for row in rows)))
        for row in rows:
            self._report_progress(row)

    def _report_progress(self, row: _Row) -> None:
        """Report what is complete: sent pieces, pieces without sound, and the context."""
        while not row.unsent:
            self._end_piece(row)
            if not row.queue or not row.queue[0].piece.is_silent:
                break
            piece = row.queue.popleft().piece
            self._begin(row, piece, Speech.silence(piece.words))
        if row.is_done:
            self._rows.end(row)

    def _end_piece(self, row: _Row) -> None:
        piece, row.current = row.current, None
        if piece is not None and piece.segment_end is not None:
            self._rows.end_segment(row, piece.segment_end)


def _open_row(command: Submit) -> _Row:
    return _Row(
        context=command.context,
        voice_name=command.voice,
        options=command.options,
        words_per_minute=_words_per_minute(command.options.speed),
    )


def _words_per_minute(speed: float) -> int:
    if not MIN_NATIVE_SPEED <= speed <= MAX_NATIVE_SPEED:
        raise InvalidRequestError(
            f"expected a speed from {MIN_NATIVE_SPEED} to {MAX_NATIVE_SPEED}; got {speed}",
            code=ErrorCode.INVALID_PARAM,
        )
    return round(NORMAL_WORDS_PER_MINUTE * speed)
