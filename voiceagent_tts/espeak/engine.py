"""The embedded voice as an engine: segments in, words and audio out, scheduled fairly.

Each `Submit` or `Append` with text is one segment. Its pieces are spoken one by one, each as a
whole (a second of audio takes about a millisecond): first its words are sent, then its audio as far
as credit allows. One step speaks at most one piece of one row: first the rows without any audio,
oldest first, then those whose playout ends soonest.

This module knows no socket, no clock and no process; one thread must use it.
"""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Segment,
    WarningCode,
)
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
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
    Cancel,
    Command,
    Credit,
    Flush,
    Prepare,
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
    Words,
)
from voiceagent_tts.text.morphemes import japanese_tokenizer

_logger = logging.getLogger(__name__)

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


@dataclass(slots=True)
class _Row:
    """The state of one context.

    Attributes:
        context: number of the context.
        voice_name: name of its voice, as in `Submit`.
        words_per_minute: speaking rate.
        expects_text: whether more text may follow.
        queue: pieces that are not spoken yet.
        current: the piece whose audio is being sent.
        unsent: PCM of `current` that waits for credit.
        end_sample: end of the audio sent so far, on the context's clock.
        samples_wanted: audio that the credit allows, from the context's first sample.
        playback_start: time in seconds at which playback without gaps would have begun.
        is_warned_of_kanji: whether the client knows that kanji are spelled out.
        is_warned_of_ipa: whether the client knows of IPA that the voice cannot say.
    """

    context: int
    voice_name: str
    words_per_minute: int
    expects_text: bool = True
    queue: deque[_QueuedPiece] = field(default_factory=deque[_QueuedPiece])
    current: Piece | None = None
    unsent: memoryview = memoryview(b"")
    end_sample: int = 0
    samples_wanted: int = 0
    playback_start: float = 0.0
    is_warned_of_kanji: bool = False
    is_warned_of_ipa: bool = False

    @property
    def has_credit(self) -> bool:
        return self.end_sample < self.samples_wanted

    @property
    def can_speak(self) -> bool:
        return self.current is None and bool(self.queue) and self.has_credit

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.has_credit

    @property
    def is_done(self) -> bool:
        return not (self.expects_text or self.queue or self.current)

    @property
    def urgency(self) -> tuple[bool, float]:
        """Sort key: rows without audio first, in order of arrival, then by the end of playout.

        The end of playout moves with every chunk, not only with credit; otherwise a row that is far
        ahead would count as urgent until its next credit.
        """
        if not self.end_sample:
            return False, 0.0
        return True, self.playback_start + self.end_sample / SAMPLE_RATE_HZ

    def pop_chunk(self) -> AudioChunk:
        """Remove and return the next chunk of the unsent audio."""
        limit = _CHUNK_SAMPLES if self.end_sample else _FIRST_CHUNK_SAMPLES
        size = min(limit, self.samples_wanted - self.end_sample) * BYTES_PER_SAMPLE
        chunk = AudioChunk(self.end_sample, bytes(self.unsent[:size]))
        self.unsent = self.unsent[size:]
        self.end_sample = chunk.end_sample
        return chunk


class EspeakEngine:
    """Implements `seam.engine.Engine` with the process's espeak-ng.

    espeak has no use for `seed`, `initial_frames`, `keeps_silence` and `is_batch`, and ignores
    them; it ignores `instruct` with a warning. The name of a cloned voice fails as an unknown
    voice. The samples of a text are equal in every new process.

    Args:
        inbox: source of commands; also read while a piece is spoken.
        outbox: destination of events.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    def __init__(self, inbox: Inbox, outbox: Outbox, *, max_rows: int = 512) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._max_rows = max_rows
        self._library = EspeakLibrary.open()
        self._catalogue = VoiceCatalogue(self._library.voices(), self._library.variants())
        self._rows: dict[int, _Row] = {}
        self._preparations: deque[Prepare] = deque()

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
        self._handle_commands()
        self._prepare()
        row = min(
            (row for row in self._rows.values() if row.can_speak),
            key=lambda row: row.urgency,
            default=None,
        )
        if row is not None:
            self._speak(row)
        self._send_audio()
        has_work = any(row.can_speak or row.can_send for row in self._rows.values())
        return 0.0 if has_work or self._preparations else None

    def close(self) -> None:
        """Drop every row; espeak itself stays with the process."""
        self._rows.clear()
        self._preparations.clear()

    # Commands are also handled between two chunks of a piece, when espeak must not be entered
    # again, so none of them may call the library.

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
                self._rows.pop(command.context, None)
                self._outbox(Cancelled(command.context))
            case Credit():
                self._credit(command)
            case Prepare():
                self._preparations.append(command)
            case Flush():
                pass  # segments are spoken as a whole, so none waits for more text

    def _submit(self, command: Submit) -> None:
        if command.context in self._rows:
            raise InvalidRequestError(
                f"context {command.context} is already open", code=ErrorCode.CONTEXT_EXISTS
            )
        if len(self._rows) >= self._max_rows:
            raise OverloadedError(f"all {self._max_rows} rows of the embedded voice are in use")
        row = _Row(command.context, command.voice, _words_per_minute(command.options.speed))
        self._rows[command.context] = row
        if command.options.instruct:
            self._warn(row, WarningCode.INSTRUCT_IGNORED, INSTRUCT_IGNORED)
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
        voice = self._catalogue.resolve(row.voice_name, command.language or "en")
        if command.text:
            segment = Segment(command.text, command.char_base, command.readings)
            pieces = split_pieces(segment)
            row.queue.extend(_QueuedPiece(piece, voice) for piece in pieces)
        row.expects_text = command.more
        self._report_progress(row)

    def _credit(self, command: Credit) -> None:
        row = self._rows.get(command.context)
        if row is not None:
            row.playback_start = command.playout_end - row.end_sample / SAMPLE_RATE_HZ
            row.samples_wanted = max(row.samples_wanted, command.samples_wanted)

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
        with self._failing(row.context):
            if queued.voice.reads_kana_only and not row.is_warned_of_kanji:
                self._warn_of_kanji(row, queued.piece.spoken.text)
            if not (row.is_warned_of_ipa or can_say_ipa(queued.piece, queued.voice, self._library)):
                row.is_warned_of_ipa = True
                self._warn(row, WarningCode.IPA_IGNORED, IPA_WARNING)
            speech = speak(self._library, queued.piece, delivery, lambda: self._continues(row))
            if speech is not None:
                row.queue.popleft()
                self._begin(row, queued.piece, speech)
                self._report_progress(row)

    def _warn_of_kanji(self, row: _Row, text: str) -> None:
        if lacks_readings(text):
            row.is_warned_of_kanji = True
            self._warn(row, WarningCode.KANJI_SPELLED_OUT, KANJI_WARNING)

    def _warn(self, row: _Row, code: WarningCode, message: str) -> None:
        self._outbox(Warned(row.context, code, message))

    def _continues(self, row: _Row) -> bool:
        """Handle commands while `row` is spoken; return False if one of them ended it."""
        self._handle_commands()
        return self._rows.get(row.context) is row

    def _begin(self, row: _Row, piece: Piece, speech: Speech) -> None:
        """Send a piece's words and queue its audio after all audio of the row."""
        words = tuple(word.later(row.end_sample) for word in speech.words)
        if words:
            self._outbox(Words(row.context, words))
        row.current, row.unsent = piece, memoryview(speech.pcm)

    def _send_audio(self) -> None:
        waiting = (row for row in self._rows.values() if row.can_send)
        is_new_waiting = any(row.can_speak and not row.end_sample for row in self._rows.values())
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
            del self._rows[row.context]
            self._outbox(Done(row.context, row.end_sample))

    def _end_piece(self, row: _Row) -> None:
        piece, row.current = row.current, None
        if piece is not None and piece.segment_end is not None:
            self._outbox(SegmentEnd(row.context, piece.segment_end, row.end_sample))

    @contextmanager
    def _failing(self, context: int) -> Iterator[None]:
        """Turn an error into the failure of one context; the others continue."""
        try:
            yield
        except VoiceAgentError as error:
            self._fail(context, error)
        except Exception as error:
            failure = EngineError.of("the embedded voice", error)
            _logger.error("context %d: %s", context, failure)
            self._fail(context, failure)

    def _fail(self, context: int, error: VoiceAgentError) -> None:
        self._rows.pop(context, None)
        self._outbox(Failed(context, error.code, error.message))


def _words_per_minute(speed: float) -> int:
    if not MIN_NATIVE_SPEED <= speed <= MAX_NATIVE_SPEED:
        raise InvalidRequestError(
            f"expected a speed from {MIN_NATIVE_SPEED} to {MAX_NATIVE_SPEED}; got {speed}",
            code=ErrorCode.INVALID_PARAM,
        )
    return round(NORMAL_WORDS_PER_MINUTE * speed)
