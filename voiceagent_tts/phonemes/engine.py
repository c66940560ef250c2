"""Networks that predict durations as an engine: segments in, words and audio out, part by part.

Each `Submit` or `Append` with text is one segment. Its words are sent as soon as the network knows
their durations, then its audio as far as credit allows. One step makes the next part of as many
rows as there are threads: rows that listeners wait for come first, then those whose playout ends
soonest, and batch contexts last. A part has at most two seconds, so a cancel or a new row waits no
longer than these take.

This module knows no socket, no clock and no process; one thread must use it.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    AudioChunk,
    Segment,
    WarningCode,
    Word,
    WordTimestamp,
)
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.phonemes.pieces import Piece, split_pieces
from voiceagent_tts.phonemes.reading import Phonemes
from voiceagent_tts.phonemes.speech import UNSPOKEN_CONFIDENCE, Speech
from voiceagent_tts.phonemes.voice import LoadedVoice
from voiceagent_tts.seam.commands import (
    MAX_NATIVE_SPEED,
    MIN_NATIVE_SPEED,
    Append,
    Prepare,
    Submit,
)
from voiceagent_tts.seam.engine import Inbox, Outbox
from voiceagent_tts.seam.events import (
    AudioStep,
    Capabilities,
    ContextAudio,
    Words,
)
from voiceagent_tts.seam.segment_rows import SegmentRow, SegmentRows
from voiceagent_tts.voices import name_hint

IPA_WARNING = (
    "a pronunciation in IPA has a symbol of no sound of the voice's language, so the letters are "
    "read; try a respelling, or other symbols"
)


@dataclass(slots=True, kw_only=True)
class _Row(SegmentRow):
    """The state of one context.

    Attributes:
        voice: its voice.
        noise: source of its random numbers.
        queue: pieces that are not spoken to their end.
        reading: what is left to say of the first piece; None before it is read.
        speech: speaks the first piece; None between two strings of phonemes.
        unsent: PCM that waits for credit.
        is_warned: whether the client knows of IPA that the voice cannot say.
    """

    voice: LoadedVoice
    noise: np.random.Generator
    queue: deque[Piece] = field(default_factory=deque[Piece])
    reading: Iterator[tuple[Phonemes, list[Word]]] | None = None
    speech: Speech | None = None
    unsent: memoryview = memoryview(b"")
    is_warned: bool = False

    @property
    def can_speak(self) -> bool:
        return bool(self.queue) and not self.unsent and self.has_credit

    @property
    def can_send(self) -> bool:
        return bool(self.unsent) and self.has_credit

    @property
    def has_more(self) -> bool:
        """Whether something is said after the first piece, as far as is known."""
        return self.expects_text or len(self.queue) > 1

    def pop_chunk(self) -> AudioChunk:
        """Remove and return the unsent audio that the credit allows."""
        size = (self.samples_wanted - self.end_sample) * BYTES_PER_SAMPLE
        pcm, self.unsent = bytes(self.unsent[:size]), self.unsent[size:]
        return self.append(pcm)


@dataclass(frozen=True, slots=True)
class _Made:
    """What one step has made for a row.

    Attributes:
        words: the words whose audio begins with `pcm`, from its first sample.
        pcm: the next audio; empty if the first piece has ended.
    """

    words: tuple[WordTimestamp, ...]
    pcm: bytes


class PhonemeEngine:
    """Implements `seam.engine.Engine` with voices whose networks predict durations.

    It ignores `initial_frames`, and `instruct` with a warning. Equal texts with equal seeds give
    equal samples; without a seed their noise differs.

    Args:
        inbox: source of commands.
        outbox: destination of events.
        voices: the voices by name, the default first.
        name: name of the engine.
        model: name of its model, with what shapes the sound.
        max_rows: maximum number of open contexts; a `Submit` beyond it fails as overloaded.
        threads: rows that are computed at the same time.
    """

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
        self._outbox = outbox
        self._name = name
        self._model = model
        self._voices = voices
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "speech")
        self._rows = SegmentRows(
            inbox,
            outbox,
            max_rows=max_rows,
            engine_name=name,
            open_row=self._open_row,
            add_text=self._add_text,
            prepare=_ignore,
        )

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
            max_rows=self._rows.max_rows,
            has_native_speed=True,
            reads_ipa=True,
            has_pauses=True,
            voice_details=details,
            has_monolingual_voices=True,
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
        """Handle commands, make a part of the rows that need it most, and send what credit allows.

        Returns:
            0.0 if there is more work, None if the process can wait for commands.
        """
        self._rows.handle_commands()
        ready = sorted((row for row in self._rows if row.can_speak), key=lambda row: row.urgency)
        making = [(row, self._pool.submit(_make, row)) for row in ready[: self._threads]]
        for row, made in making:
            self._receive(row, made)
        self._send_audio()
        has_work = any(row.can_speak or row.can_send for row in self._rows)
        return 0.0 if has_work else None

    def close(self) -> None:
        """Drop every row, and end the threads."""
        self._rows.clear()
        self._pool.shutdown()

    def _open_row(self, command: Submit) -> _Row:
        voice = self._voices.get(command.voice.casefold())
        if voice is None:
            raise InvalidRequestError(
                f"expected the name of a voice, got {command.voice[:64]!r}; "
                f"{name_hint(command.voice, self._voices)}",
                code=ErrorCode.INVALID_VOICE,
            )
        options = command.options
        if not MIN_NATIVE_SPEED <= options.speed <= MAX_NATIVE_SPEED:
            raise InvalidRequestError(
                f"expected a speed from {MIN_NATIVE_SPEED} to {MAX_NATIVE_SPEED}; got "
                f"{options.speed}",
                code=ErrorCode.INVALID_PARAM,
            )
        return _Row(
            context=command.context,
            voice_name=command.voice,
            options=options,
            voice=voice,
            noise=np.random.default_rng(options.seed),
        )

    def _add_text(self, row: _Row, command: Submit | Append) -> None:
        if command.text:
            pieces = list(split_pieces(Segment(command.text, command.char_base, command.readings)))
            row.queue += pieces
            self._warn_of_ipa(row, pieces)
        row.expects_text = command.more
        self._report_progress(row)

    def _warn_of_ipa(self, row: _Row, pieces: Sequence[Piece]) -> None:
        """Tell the client once of IPA that the voice cannot say."""
        can_say = row.voice.pronouncer.can_say
        spoken = (piece for piece in pieces if not piece.is_silent)
        if row.is_warned or all(can_say(ipa) for piece in spoken for _, ipa in piece.said.ipa):
            return
        row.is_warned = True
        self._rows.warn(row, WarningCode.IPA_IGNORED, IPA_WARNING)

    def _receive(self, row: _Row, making: "Future[_Made]") -> None:
        """Wait for what a thread makes for `row`; send its words, and queue its audio."""
        with self._rows.failing(row.context):
            made = making.result()
            self._send_words(row, made.words)
            row.unsent = memoryview(made.pcm)
            if not made.pcm:
                self._end_piece(row)
                self._report_progress(row)

    def _send_words(self, row: _Row, words: Sequence[WordTimestamp]) -> None:
        if words:
            placed = tuple(word.later(row.end_sample) for word in words)
            self._outbox(Words(row.context, placed))

    def _send_audio(self) -> None:
        rows = sorted((row for row in self._rows if row.can_send), key=lambda row: row.urgency)
        if rows:
            chunks = tuple(ContextAudio(row.context, row.pop_chunk()) for row in rows)
            self._outbox(AudioStep(chunks))

    def _report_progress(self, row: _Row) -> None:
        """Report what is complete: pieces without anything to speak, and the context."""
        while row.queue and row.queue[0].is_silent and row.speech is None:
            self._send_words(row, _unspoken(row.queue[0].words))
            self._end_piece(row)
        if not row.queue and not row.expects_text:
            self._rows.end(row)

    def _end_piece(self, row: _Row) -> None:
        row.reading = None
        if (segment_end := row.queue.popleft().segment_end) is not None:
            self._rows.end_segment(row, segment_end)


def _make(row: _Row) -> _Made:
    """Make the next audio of the row's first piece; runs on a thread, one for each row."""
    piece = row.queue[0]
    if row.reading is None:
        row.reading = row.voice.read(piece)
    words: tuple[WordTimestamp, ...] = ()
    while True:
        if row.speech is None:
            phonemes, given = next(row.reading, (None, []))
            if phonemes is None:
                return _Made(words, b"")
            if not phonemes.sounds:
                words += _unspoken(given)
                continue
            row.speech = _speech(row, phonemes, given)
        is_new = not row.speech.words
        pcm = row.speech.next_part(has_pause=piece.ends_clause and row.has_more)
        if pcm:
            return _Made(words + (row.speech.words if is_new else ()), pcm)
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


def _unspoken(words: Sequence[Word]) -> tuple[WordTimestamp, ...]:
    """Words without a sound, which have no length."""
    return tuple(WordTimestamp(word, 0, 0, UNSPOKEN_CONFIDENCE) for word in words)


def _ignore(command: Prepare) -> None:
    """Do nothing: the voices are in memory, and an unknown one fails when it is submitted."""
