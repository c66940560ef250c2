"""The reference that audio is aligned to: the sounds of the embedded voice's speech, in its timing.

Words are synthesized a clause at a time, shortly before they are needed. Pauses are left out, as
every speaker pauses elsewhere. This module owns the process's espeak-ng.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from voiceagent_tts.aligner.online.features import HOP_SAMPLES, Booleans, Integers
from voiceagent_tts.aligner.online.phones import sound_spans
from voiceagent_tts.core import BYTES_PER_SAMPLE, Word, ms_to_samples
from voiceagent_tts.espeak.catalogue import OTHER_LANGUAGES, EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.speech import Delivery, Speech, speak
from voiceagent_tts.text.cleaning import speakable
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.pieces import TextPiece
from voiceagent_tts.text.punctuation import ends_clause
from voiceagent_tts.text.readings import Said
from voiceagent_tts.text.words import split_words

_VOICE_NAME = "default"
_NORMAL_WORDS_PER_MINUTE = 175

_MIN_CLAUSE_CHARS, _MAX_CLAUSE_CHARS = 24, 120
_CLAUSE_PAUSE_SAMPLES = ms_to_samples(200)
"""Pause that speakers usually make between two clauses."""
_MIN_FRAGMENT_WORDS = 4
"""Words of a clause whose end is not written yet; fewer sound too unlike the whole clause."""
_ENOUGH_FRAMES = 300
"""Reference frames ahead of the head at which no more is synthesized."""
_FEW_FRAMES = 100
"""Reference frames ahead of the head below which an unfinished clause is synthesized."""

_NUMBER = re.compile(r"\W*(\d(?:[\d.,:/()+ -]*\d)?)\W*")
_YEAR = re.compile(r"\W*((?:1[1-9]|20)\d\d)\W*")
_LEAST_DIGITS = 4
"""Shorter numbers are read in one way."""
_PAIRED_DIGITS = (4, 6)
_MOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Fork:
    """Readings of one word that lie one after the other in the reference; a speaker says one.

    Attributes:
        borders: first frame of each reading, in order, and the first frame after the last.
    """

    borders: tuple[int, ...]

    @property
    def span(self) -> range:
        """All frames of the word."""
        return range(self.borders[0], self.borders[-1])

    def unsaid_after(self, frame: int) -> int:
        """Frames of the word at `frame` or later that a path there leaves out.

        Before the word, the path is taken to say its first reading.
        """
        end = next((border for border in self.borders[1:] if border > frame), self.borders[-1])
        return self.borders[-1] - end


@dataclass(frozen=True, slots=True)
class ReferenceWord:
    """A word's place in the reference.

    Attributes:
        end_frame: the first frame after it; equal to `first_frame` for a word without sound.
        first_offset: samples from the centre of its first frame to its start.
        end_offset: samples from the centre of its last frame to its end.
        is_exact: whether the embedded voice reported an exact time.
        normal_frames: its length in frames at the normal pace; 0.0 if it has several readings.
    """

    word: Word
    first_frame: int
    end_frame: int
    first_offset: int
    end_offset: int
    is_exact: bool
    normal_frames: float

    def moved(self, frames: int) -> "ReferenceWord":
        """The word in a reference in which `frames` more frames lie before it."""
        return replace(
            self, first_frame=self.first_frame + frames, end_frame=self.end_frame + frames
        )


class ReferenceVoice:
    """Synthesizes references with the process's espeak-ng; used by one thread.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    def __init__(self) -> None:
        self._library = EspeakLibrary.open()
        self._catalogue = VoiceCatalogue(self._library.voices(), self._library.variants())

    def voice_for(self, language: str) -> EspeakVoice:
        """The espeak voice that speaks `language`.

        Raises:
            InvalidRequestError: espeak has no voice for the language; `invalid_language`.
        """
        code = language.partition("-")[0].lower()
        return self._catalogue.resolve(code if code in OTHER_LANGUAGES else _VOICE_NAME, language)

    def synthesize(
        self,
        words: Sequence[Word],
        voice: EspeakVoice,
        duration_ratio: float,
        *,
        as_written: bool = False,
    ) -> Speech:
        """Speak at least one word; `duration_ratio` is relative to the normal pace.

        With `as_written` espeak reads numbers and signs in its own way.

        Raises:
            EngineError: espeak could not speak them.
        """
        words_per_minute = round(_NORMAL_WORDS_PER_MINUTE / duration_ratio)
        delivery = Delivery(voice, words_per_minute, has_end_pause=False, trims_lead=True)
        speech = speak(
            self._library,
            _piece(words, None if as_written else voice.language),
            delivery,
            lambda: True,
        )
        assert speech is not None, "nothing stops a reference"
        return speech


class GrowingReference:
    """The reference of one context, synthesized as far as it is needed.

    Frames are numbered from the first of the context; frames that are no longer needed are dropped.
    """

    def __init__(self, reference_voice: ReferenceVoice, voice: EspeakVoice) -> None:
        self.words: deque[ReferenceWord] = deque()
        """Synthesized words that have not been popped, in order."""
        self.forks: deque[Fork] = deque()
        """Words that speakers may read otherwise, in order."""
        self._reference_voice, self._voice = reference_voice, voice
        self._waiting: deque[Word] = deque()
        """Words that are not synthesized yet."""
        self._first_frame = 0
        self._sounds = np.zeros(0, np.int64)
        self._is_start = np.zeros(0, np.bool_)
        self._centres = np.zeros(0, np.int64)
        self._end_sample = 0

    @property
    def length(self) -> int:
        """Number of frames synthesized so far."""
        return self._first_frame + len(self._sounds)

    @property
    def kept_frames(self) -> int:
        """Number of frames in memory."""
        return len(self._sounds)

    def append(self, words: Iterable[Word]) -> None:
        """Append more words of the context, in order."""
        self._waiting.extend(words)

    def extend(self, head: int, duration_ratio: float, *, is_urgent: bool) -> None:
        """Synthesize waiting words until there is enough reference ahead of the head.

        That is the reference frame that the audio has reached, in a voice of `duration_ratio`.
        Where audio waits for words, `is_urgent`, unfinished clauses are synthesized too.
        """
        while self._waiting and self.frames_after(head) < _ENOUGH_FRAMES:
            words, is_complete = self._next_clause()
            is_enough = words >= _MIN_FRAGMENT_WORDS and self.frames_after(head) < _FEW_FRAMES
            if not (is_complete or is_enough or is_urgent):
                return
            self._synthesize([self._waiting.popleft() for _ in range(words)], duration_ratio)

    def frames_after(self, head: int) -> int:
        """Frames from the head to the end of the reference on one path; 1 at its last frame."""
        unsaid = sum(fork.unsaid_after(head) for fork in self.forks if fork.span.stop > head)
        return self.length - head - unsaid

    def pop_words(self, char_end: int) -> tuple[list[ReferenceWord], list[Word]]:
        """Remove the words that begin before `char_end`: the synthesized ones, and the others."""
        synthesized: list[ReferenceWord] = []
        while self.words and self.words[0].word.char_start < char_end:
            synthesized.append(self.words.popleft())
        waiting: list[Word] = []
        while self._waiting and self._waiting[0].char_start < char_end:
            waiting.append(self._waiting.popleft())
        return synthesized, waiting

    def sounds(self, window: range) -> Integers:
        """Index in `SOUNDS` of each frame in `window`, [len(window)]."""
        return self._sounds[window.start - self._first_frame : window.stop - self._first_frame]

    def starts(self, window: range) -> Booleans:
        """[len(window) + 1], whether a pause may lie before each frame, and after the window."""
        starts = self._is_start[window.start - self._first_frame :][: len(window) + 1]
        return np.append(starts, True) if len(starts) == len(window) else starts

    def sample(self, frame: int) -> int:
        """Centre of a frame on the embedded voice's clock; the end of the reference after it."""
        place = frame - self._first_frame
        return int(self._centres[place]) if place < len(self._centres) else self._end_sample

    def drop_frames(self, before: int) -> None:
        """Drop the frames before `before`."""
        count = max(0, before - self._first_frame)
        self._sounds, self._centres = self._sounds[count:], self._centres[count:]
        self._is_start = self._is_start[count:]
        self._first_frame += count
        while self.forks and self.forks[0].span.stop <= self._first_frame:
            self.forks.popleft()

    def _next_clause(self) -> tuple[int, bool]:
        """Number of words to synthesize next, and whether their clause is complete."""
        first = self._waiting[0].char_start
        for count, word in enumerate(self._waiting, start=1):
            chars = word.char_end - first
            if chars >= _MAX_CLAUSE_CHARS:
                return max(count - 1, 1), True
            if chars >= _MIN_CLAUSE_CHARS and ends_clause(word.text):
                return count, True
        return len(self._waiting), ends_clause(self._waiting[-1].text)

    def _synthesize(self, words: Sequence[Word], duration_ratio: float) -> None:
        speech = self._reference_voice.synthesize(words, self._voice, duration_ratio)
        sounds, centres = frames_of(speech, is_english=self._voice.is_english)
        placed = list(_placed(speech, centres, duration_ratio))
        frames = _ReferenceFrames(sounds, _starts(placed, len(centres)), centres)
        at = 0  # in `frames`
        for word in placed:
            first = self.length + word.first_frame - at
            has_digit = any(map(str.isdigit, word.word.text))  # may be said as no reading foresees
            if not has_digit or word.end_frame <= word.first_frame:
                self.words.append(word.moved(self.length - at))
                continue
            self._append(frames.part(at, word.end_frame))
            at = word.end_frame
            borders = [first, self.length]
            own_centres = centres[word.first_frame : word.end_frame]
            for reading in other_readings(word.word.text):
                self._append(self._reading(reading, own_centres, duration_ratio))
                borders.append(self.length)
            self.forks.append(Fork(tuple(borders)))
            self.words.append(
                replace(word, first_frame=first, end_frame=self.length, normal_frames=0.0)
            )
        self._append(frames.part(at, len(centres)))
        self._end_sample += len(speech.pcm) // BYTES_PER_SAMPLE + _CLAUSE_PAUSE_SAMPLES

    def _reading(
        self, reading: str, own_centres: Integers, duration_ratio: float
    ) -> "_ReferenceFrames":
        """Another reading of a word, stretched to the time of the first, which is at `own_centres`.

        Then the words after it are expected at the same time, whatever is said.
        """
        speech = self._reference_voice.synthesize(
            split_words(reading), self._voice, duration_ratio, as_written=True
        )
        sounds, centres = frames_of(speech, is_english=self._voice.is_english)
        starts = _starts(_placed(speech, centres, duration_ratio), len(centres))
        stretched = np.linspace(own_centres[0], own_centres[-1], len(centres)).astype(np.int64)
        return _ReferenceFrames(sounds, starts, stretched)

    def _append(self, frames: "_ReferenceFrames") -> None:
        self._sounds = np.append(self._sounds, frames.sounds)
        self._is_start = np.append(self._is_start, frames.is_start)
        self._centres = np.append(self._centres, frames.centres + self._end_sample)


@dataclass(frozen=True, slots=True)
class _ReferenceFrames:
    """Frames of speech: their sounds, whether a word begins there, and their centres, all [N]."""

    sounds: Integers
    is_start: Booleans
    centres: Integers

    def part(self, first: int, end: int) -> "_ReferenceFrames":
        return _ReferenceFrames(
            self.sounds[first:end], self.is_start[first:end], self.centres[first:end]
        )


def other_readings(word: str) -> tuple[str, ...]:
    """How else people read a number than the embedded voice does; empty for most words.

    Digit by digit, in pairs, or as a number where that reads a year.
    """
    number = _NUMBER.fullmatch(word)
    digits = "".join(filter(str.isdigit, number[1])) if number else ""
    if not _LEAST_DIGITS <= len(digits) <= _MOST_DIGITS:
        return ()
    readings = [" ".join(digits)]
    if (year := _YEAR.fullmatch(word)) is not None:
        readings.append(year[1])  # as a number
    if len(digits) in _PAIRED_DIGITS:
        readings.append(" ".join(digits[at : at + 2] for at in range(0, len(digits), 2)))
    return tuple(readings)


def frames_of(speech: Speech, *, is_english: bool) -> tuple[Integers, Integers]:
    """The sound of each frame of `speech` that is in no pause, [N], and its centre, [N]."""
    sounds: list[int] = []
    centres: list[int] = []
    for passed, phoneme in sound_spans(speech.phonemes, is_english=is_english):
        if phoneme.is_pause:
            continue
        start, end = phoneme.start_sample, phoneme.end_sample
        # Centres lie on one grid for the whole speech.
        first = -(-(start - HOP_SAMPLES // 2) // HOP_SAMPLES) * HOP_SAMPLES + HOP_SAMPLES // 2
        for centre in range(first, end, HOP_SAMPLES):
            sounds.append(passed[(centre - start) * len(passed) // (end - start)])
            centres.append(centre)
    return np.array(sounds, np.int64), np.array(centres, np.int64)


def _placed(speech: Speech, centres: Integers, duration_ratio: float) -> Iterator[ReferenceWord]:
    for time in speech.words:
        end_sample = time.end_sample or time.start_sample
        borders = (time.start_sample, end_sample)
        first, end = (int(place) for place in np.searchsorted(centres, borders))
        yield ReferenceWord(
            word=time.word,
            first_frame=first,
            end_frame=end,
            first_offset=_offset(time.start_sample, centres, first),
            end_offset=_offset(end_sample, centres, end - 1),
            is_exact=time.is_exact and end > first,
            normal_frames=(end - first) / duration_ratio,
        )


def _offset(sample: int, centres: Integers, place: int) -> int:
    """Samples from a frame's centre to `sample`, limited to one hop.

    More than that lies between them only where there is silence.
    """
    if not 0 <= place < len(centres):
        return 0
    return min(max(sample - int(centres[place]), -HOP_SAMPLES), HOP_SAMPLES)


def _starts(words: Iterable[ReferenceWord], count: int) -> Booleans:
    """[count], true where one of `words` begins, and at the first frame."""
    is_start = np.zeros(count, np.bool_)
    is_start[:1] = True
    for word in words:
        is_start[word.first_frame : word.first_frame + 1] = True
    return is_start


def _piece(words: Sequence[Word], language: str | None) -> TextPiece:
    text, origins, end = "", list[int](), words[0].char_start
    for word in words:
        text += " " * (word.char_start - end) + word.text
        origins += range(end, word.char_start)
        # The reading of a word may have more letters than its span.
        places = range(word.char_start, word.char_end)
        is_written = len(word.text) == len(places)
        origins += places if is_written else [word.char_start] * len(word.text)
        end = word.char_end
    cleaned = speakable(text)
    offsets = tuple(origins[offset] for offset in cleaned.offsets)
    spoken = Said(cleaned.spoken, offsets)
    if language is not None:
        spoken = normalize(spoken, language, reads_digits=True)
    return TextPiece(tuple(words), spoken, segment_end=None)
