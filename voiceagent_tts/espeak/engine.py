"""The embedded voice at the engine's seam: segments in, words and audio out, fairly.

Each `Submit` or `Append` with text is one segment. Its pieces are spoken one by one, a piece as a
whole (a second of sound takes about a millisecond): first its words are sent, then its audio as
far as credit allows. One step speaks at most one piece of one row: rows that nobody has heard yet
come first, the oldest first, then those whose playout ends soonest.

This module knows no socket, no clock and no process; it must be used by one thread.
"""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from voiceagent_tts.core import BYTES_PER_SAMPLE, FRAME_SAMPLES, SAMPLE_RATE_HZ, AudioChunk, Segment
from voiceagent_tts.errors import (
    EngineError,
    ErrorCode,
    InvalidRequestError,
    OverloadedError,
    VoiceAgentError,
)
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import Piece, split_pieces
from voiceagent_tts.espeak.speech import Delivery, Speech, speak
from voiceagent_tts.espeak.voices import EspeakVoice, VoiceCatalogue
from voiceagent_tts.seam.commands import Append, Cancel, Command, Credit, Flush, Prepare, Submit
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Cancelled,
    Capabilities,
    ContextAudio,
    Done,
    Failed,
    SegmentEnd,
    Words,
)
from voiceagent_tts.text.morphemes import japanese_tokenizer

_logger = logging.getLogger(__name__)

NORMAL_WORDS_PER_MINUTE = 175
MIN_SPEED = 0.5
MAX_SPEED = 2.0

_FIRST_CHUNK_SAMPLES = FRAME_SAMPLES  # leaves at once
_CHUNK_SAMPLES = SAMPLE_RATE_HZ
_ROWS_PER_STEP = 16  # bounds one `AudioStep` to 16 s of sound, so that new rows need not wait
_ROWS_BESIDE_NEW = 2  # while a row waits for its first sound, which queues behind what is sent now


@dataclass(frozen=True, slots=True)
class _Line:
    """A piece that waits to be spoken, with the voice that its language asks for."""

    piece: Piece
    voice: EspeakVoice


@dataclass(slots=True)
class _Row:
    """One context.

    Attributes:
        lines: what is not spoken yet.
        current: the piece whose audio is being sent.
        unsent: PCM of `current` that waits for credit.
        end_sample: end of what was sent, on the context's clock.
        playback_start: when its listener heard, or would have heard, the first sample.
    """

    context: int
    voice_name: str
    words_per_minute: int
    expects_text: bool = True
    lines: deque[_Line] = field(default_factory=deque[_Line])
    current: Piece | None = None
    unsent: memoryview = memoryview(b"")
    end_sample: int = 0
    samples_wanted: int = 0
    playback_start: float = 0.0

    @property
    def has_credit(self) -> bool:
        return self.end_sample < self.samples_wanted

    @property
    def can_speak(self) -> bool:
        return self.current is None and bool(self.lines) and self.has_credit

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.has_credit

    @property
    def is_done(self) -> bool:
        return not (self.expects_text or self.lines or self.current)

    @property
    def deadline(self) -> tuple[bool, float]:
        """Sorts rows without audio first, in the order in which they came, then by playout end.

        That moves with every chunk, not only when credit comes, or a row that is far ahead would
        count as urgent until then.
        """
        if not self.end_sample:
            return False, 0.0
        return True, self.playback_start + self.end_sample / SAMPLE_RATE_HZ

    def take_audio(self) -> AudioChunk:
        """Cut the next chunk from the unsent audio."""
        limit = _CHUNK_SAMPLES if self.end_sample else _FIRST_CHUNK_SAMPLES
        size = min(limit, self.samples_wanted - self.end_sample) * BYTES_PER_SAMPLE
        chunk = AudioChunk(self.end_sample, bytes(self.unsent[:size]))
        self.unsent = self.unsent[size:]
        self.end_sample = chunk.end_sample
        return chunk


class EspeakEngine:
    """Implements `seam.engine.Engine` over the process's espeak-ng.

    `seed` and `instruct` have no meaning for espeak and are ignored, and so are clone prompts:
    a `Submit` that asks for one fails as an unknown voice. One text sounds the same in every
    fresh process.

    Args:
        inbox: where commands come from; also asked while a piece is spoken.
        outbox: where events go.
        max_rows: contexts at a time; a `Submit` beyond it fails as overloaded.

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
        """What this engine can do."""
        return Capabilities(
            engine="espeak",
            model=f"espeak-ng {self._library.version}",
            has_native_words=True,
            text_feeding=("segment",),
            languages=self._catalogue.languages,
            voices=self._catalogue.names,
            max_rows=self._max_rows,
            has_native_speed=True,
        )

    @property
    def rows_used(self) -> int:
        """Contexts that hold a row now."""
        return len(self._rows)

    @property
    def figures(self) -> dict[str, float]:
        """None beside those that every worker has."""
        return {}

    def step(self) -> float | None:
        """Take commands, speak at most one piece, and send the audio that is wanted."""
        self._take_commands()
        self._prepare()
        row = min(
            (row for row in self._rows.values() if row.can_speak),
            key=lambda row: row.deadline,
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

    # Commands are also taken between two chunks of a piece, when espeak must not be entered
    # again: none of them calls the library.

    def _take_commands(self) -> None:
        for command in self._inbox():
            self._take(command)

    def _take(self, command: Command) -> None:
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
                pass  # a segment is spoken as a whole: nothing waits for more text

    def _submit(self, command: Submit) -> None:
        if command.context in self._rows:
            raise InvalidRequestError(
                f"context {command.context} is open already", code=ErrorCode.CONTEXT_EXISTS
            )
        if len(self._rows) >= self._max_rows:
            raise OverloadedError(f"all {self._max_rows} rows of the embedded voice are in use")
        row = _Row(command.context, command.voice, _words_per_minute(command.options.speed))
        self._rows[command.context] = row
        self._add_text(row, command)

    def _append(self, command: Append) -> None:
        row = self._rows.get(command.context)
        if row is None:  # it ended by a cancel or a failure that the sender has not seen yet
            return
        if not row.expects_text:
            raise InvalidRequestError(
                f"context {command.context} was told that no text follows, but text came",
                code=ErrorCode.CONTEXT_CLOSED,
            )
        self._add_text(row, command)

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        voice = self._catalogue.resolve(row.voice_name, command.language or "en")
        if command.text:
            pieces = split_pieces(Segment(command.text, command.char_base))
            row.lines.extend(_Line(piece, voice) for piece in pieces)
        row.expects_text = command.more
        self._advance(row)

    def _credit(self, command: Credit) -> None:
        row = self._rows.get(command.context)
        if row is not None:
            row.playback_start = command.playout_end - row.end_sample / SAMPLE_RATE_HZ
            row.samples_wanted = max(row.samples_wanted, command.samples_wanted)

    def _prepare(self) -> None:
        """Load a voice that is about to speak; one that is unknown fails when it is submitted."""
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
        line = row.lines[0]  # stays there until it is spoken: commands may look at the row
        delivery = Delivery(
            voice=line.voice,
            words_per_minute=row.words_per_minute,
            has_end_pause=line.piece.ends_clause and (row.expects_text or len(row.lines) > 1),
            trims_lead=row.end_sample == 0,
        )
        with self._failing(row.context):
            speech = speak(self._library, line.piece, delivery, lambda: self._still_wants(row))
            if speech is not None:
                row.lines.popleft()
                self._begin(row, line.piece, speech)
                self._advance(row)

    def _still_wants(self, row: _Row) -> bool:
        """Take commands while `row` is being spoken; False where one of them ended it."""
        self._take_commands()
        return self._rows.get(row.context) is row

    def _begin(self, row: _Row, piece: Piece, speech: Speech) -> None:
        """Send a piece's words, whose audio follows all that the row has sent."""
        words = tuple(word.later(row.end_sample) for word in speech.words)
        if words:
            self._outbox(Words(row.context, words))
        row.current, row.unsent = piece, memoryview(speech.pcm)

    def _send_audio(self) -> None:
        waiting = (row for row in self._rows.values() if row.can_send)
        is_new_waiting = any(row.can_speak and not row.end_sample for row in self._rows.values())
        limit = _ROWS_BESIDE_NEW if is_new_waiting else _ROWS_PER_STEP
        rows = sorted(waiting, key=lambda row: row.deadline)[:limit]
        if not rows:
            return
        self._outbox(AudioStep(tuple(ContextAudio(row.context, row.take_audio()) for row in rows)))
        for row in rows:
            self._advance(row)

    def _advance(self, row: _Row) -> None:
        """Report what is complete: pieces that are sent, pieces without sound, the context."""
        while not row.unsent:
            self._end_piece(row)
            if not row.lines or not row.lines[0].piece.is_silent:
                break
            piece = row.lines.popleft().piece
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
        """Turn an error into the failure of one context, so that the others go on."""
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
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidRequestError(
            f"speed must be between {MIN_SPEED} and {MAX_SPEED}, not {speed}",
            code=ErrorCode.INVALID_PARAM,
        )
    return round(NORMAL_WORDS_PER_MINUTE * speed)
