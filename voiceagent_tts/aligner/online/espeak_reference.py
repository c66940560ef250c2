"""What words sound like: the embedded voice says them too, and knows when each begins.

Words are said a clause at a time, shortly before they are needed; pauses are left out, as every
speaker pauses elsewhere. This module owns the process's espeak-ng and knows no sound but its own.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.features import (
    HOP_SAMPLES,
    WIDTH,
    Floats,
    Frames,
    Integers,
    frames_of,
)
from voiceagent_tts.aligner.online.voice_profile import SILENT_LEVEL, Average, VoiceSound
from voiceagent_tts.core import BYTES_PER_SAMPLE, Word, ms_to_samples
from voiceagent_tts.espeak.library import EspeakLibrary
from voiceagent_tts.espeak.pieces import Piece
from voiceagent_tts.espeak.speech import Delivery, Speech, speak
from voiceagent_tts.espeak.voices import EspeakVoice, VoiceCatalogue
from voiceagent_tts.espeak.words import SpokenText
from voiceagent_tts.text.hygiene import speakable

_SPEAKER = "default"
_NORMAL_WORDS_PER_MINUTE = 175

_MIN_CLAUSE_CHARS, _MAX_CLAUSE_CHARS = 24, 120
_CLAUSE_END = re.compile(r"[.!?,;:…。！？，、；：][\"'”’»)\]」』）]*\s*\Z")
_CLAUSE_PAUSE_SAMPLES = ms_to_samples(200)
"""What speakers usually leave between two clauses."""
_MIN_FRAGMENT_WORDS = 4
"""Of a clause whose end is not written yet: fewer sound too unlike the whole."""
_ENOUGH_FRAMES = 300
"""Of reference ahead of the head: nothing more is said."""
_FEW_FRAMES = 100
"""With fewer ahead, a clause is said whose end is not written yet."""
_BORDER_FRAMES, _GUESSED_BORDER_FRAMES = 2, 6
"""So near to its start a word may begin, where that is known and where it is a guess."""


@dataclass(frozen=True, slots=True)
class ReferenceWord:
    """Where a word is in the reference.

    Attributes:
        first_frame: its first frame with sound.
        end_frame: the first frame behind it; equal where it has no sound.
        first_offset: samples from the centre of its first frame to its start.
        end_offset: samples from the centre of its last frame to its end.
        is_exact: whether the embedded voice knew its time.
        normal_frames: how many it has at the normal pace.
    """

    word: Word
    first_frame: int
    end_frame: int
    first_offset: int
    end_offset: int
    is_exact: bool
    normal_frames: float


class ReferenceVoice:
    """The process's espeak as a speaker of references; for one thread.

    Raises:
        EngineError: espeak cannot be loaded.
    """

    def __init__(self) -> None:
        self._library = EspeakLibrary.open()
        self._catalogue = VoiceCatalogue(self._library.voices(), self._library.variants())
        self._levels: dict[str, float] = {}
        self._averages: dict[tuple[str, float], Average] = {}

    def speaker_of(self, language: str) -> EspeakVoice:
        """Who speaks this language.

        Raises:
            InvalidRequestError: nobody; `invalid_language`.
        """
        return self._catalogue.resolve(_SPEAKER, language)

    def say(self, words: Sequence[Word], speaker: EspeakVoice, slowness: float) -> Speech:
        """Say `words`, of which there is at least one.

        Args:
            words: in order.
            speaker: of their language.
            slowness: how much longer than normal it takes.

        Raises:
            EngineError: espeak could not.
        """
        words_per_minute = round(_NORMAL_WORDS_PER_MINUTE / slowness)
        delivery = Delivery(speaker, words_per_minute, has_end_pause=False, trims_lead=True)
        speech = speak(self._library, _piece(words), delivery, lambda: True)
        assert speech is not None, "nothing stops a reference"
        return speech

    def render(self, speech: Speech, speaker: EspeakVoice, tracts: Iterable[float]) -> list[Frames]:
        """The frames with sound, normalized, as from vocal tracts of other sizes.

        Each rendering has the same frames, though their features differ.
        """
        renderings: list[Frames] = []
        for tract in tracts:
            frames = frames_of(speech.pcm, tract)
            level = self._levels.get(speaker.identifier, SILENT_LEVEL)
            level = float(frames.log_energies.max(initial=level))
            self._levels[speaker.identifier] = level
            average = self._averages.get((speaker.identifier, tract), Average())
            sound, loud = VoiceSound(level=level, average=average).hear(frames)
            self._averages[speaker.identifier, tract] = sound.average
            renderings.append(loud)
        return renderings


class GrowingReference:
    """The reference of one context, as far as it is needed.

    Frames are numbered from the context's first; those that nobody asks for any more are dropped.

    Args:
        voice: says the words.
        speaker: of their language.
        tracts: the sizes of vocal tract for which there are renderings, frame for frame alike.
    """

    def __init__(
        self, voice: ReferenceVoice, speaker: EspeakVoice, tracts: tuple[float, ...]
    ) -> None:
        self.tracts = tracts
        self.words: deque[ReferenceWord] = deque()
        """Those that are said and not yet taken away, in order."""
        self._voice, self._speaker = voice, speaker
        self._unsaid: deque[Word] = deque()
        self._first_frame = 0
        self._features = np.zeros((0, len(tracts), WIDTH), np.float32)
        self._is_inside = np.zeros(0, np.bool_)
        self._centres = np.zeros(0, np.int64)
        self._end_sample = 0

    @property
    def length(self) -> int:
        """Frames so far."""
        return self._first_frame + len(self._features)

    @property
    def kept_frames(self) -> int:
        """Those that may still be asked for."""
        return len(self._features)

    def append(self, words: Iterable[Word]) -> None:
        """More words of the context."""
        self._unsaid.extend(words)

    def extend(self, head: int, slowness: float, *, is_urgent: bool) -> None:
        """Say more, until there is enough ahead of frame `head`.

        Args:
            head: where the sound is.
            slowness: of its voice.
            is_urgent: whether the sound waits for words; then no clause is waited for.
        """
        while self._unsaid and self.length - head < _ENOUGH_FRAMES:
            words, is_whole = self._next_clause()
            is_fit = words >= _MIN_FRAGMENT_WORDS and self.length - head < _FEW_FRAMES
            if not (is_whole or is_fit or is_urgent):
                return
            self._say([self._unsaid.popleft() for _ in range(words)], slowness)

    def take_words(self, char_end: int) -> tuple[list[ReferenceWord], list[Word]]:
        """Take away the words that begin before `char_end`: those said, and those never said."""
        said: list[ReferenceWord] = []
        while self.words and self.words[0].word.char_start < char_end:
            said.append(self.words.popleft())
        unsaid: list[Word] = []
        while self._unsaid and self._unsaid[0].char_start < char_end:
            unsaid.append(self._unsaid.popleft())
        return said, unsaid

    def features(self, window: range) -> Floats:
        """[len(window), renderings, WIDTH]."""
        return self._features[self._places(window)]

    def is_inside_word(self, window: range) -> npt.NDArray[np.bool_]:
        """[len(window)], false where a word may begin."""
        return self._is_inside[self._places(window)]

    def sample(self, frame: int) -> int:
        """Where a frame is on the clock of the embedded voice; its end, behind the last one."""
        place = frame - self._first_frame
        return int(self._centres[place]) if place < len(self._centres) else self._end_sample

    def choose(self, rendering: int) -> None:
        """Go on with one rendering alone."""
        self.tracts = self.tracts[rendering : rendering + 1]
        self._features = self._features[:, rendering : rendering + 1].copy()

    def forget(self, before: int) -> None:
        """No frame before `before` is asked for again."""
        count = max(0, before - self._first_frame)
        self._features, self._centres = self._features[count:], self._centres[count:]
        self._is_inside = self._is_inside[count:]
        self._first_frame += count

    def _places(self, window: range) -> slice:
        return slice(window.start - self._first_frame, window.stop - self._first_frame)

    def _next_clause(self) -> tuple[int, bool]:
        """How many words to say next, and whether their clause is complete."""
        first = self._unsaid[0].char_start
        for count, word in enumerate(self._unsaid, start=1):
            chars = word.char_end - first
            if chars >= _MAX_CLAUSE_CHARS:
                return max(count - 1, 1), True
            if chars >= _MIN_CLAUSE_CHARS and _CLAUSE_END.search(word.text):
                return count, True
        return len(self._unsaid), False

    def _say(self, words: Sequence[Word], slowness: float) -> None:
        speech = self._voice.say(words, self._speaker, slowness)
        renderings = self._voice.render(speech, self._speaker, self.tracts)
        centres = renderings[0].centres
        placed = list(_placed(speech, centres, self.length, slowness))
        self.words.extend(placed)
        self._is_inside = np.append(self._is_inside, _inside(placed, self.length, len(centres)))
        features = np.stack([frames.features for frames in renderings], axis=1)
        self._features = np.concatenate((self._features, features))
        self._centres = np.append(self._centres, centres + self._end_sample)
        self._end_sample += len(speech.pcm) // BYTES_PER_SAMPLE + _CLAUSE_PAUSE_SAMPLES


def _placed(
    speech: Speech, centres: Integers, first_frame: int, slowness: float
) -> Iterator[ReferenceWord]:
    """The words of `speech`, whose frames are at `centres`, the first being `first_frame`."""
    for time in speech.words:
        end_sample = time.end_sample or time.start_sample
        borders = np.array((time.start_sample, end_sample)) - HOP_SAMPLES // 2
        first, end = (int(place) for place in np.searchsorted(centres, borders))
        yield ReferenceWord(
            word=time.word,
            first_frame=first_frame + first,
            end_frame=first_frame + end,
            first_offset=_offset(time.start_sample, centres, first),
            end_offset=_offset(end_sample, centres, end - 1),
            is_exact=time.is_exact and end > first,
            normal_frames=(end - first) / slowness,
        )


def _offset(sample: int, centres: Integers, place: int) -> int:
    """From a frame's centre to `sample`, which is close to it unless silence lies between."""
    if not 0 <= place < len(centres):
        return 0
    return min(max(sample - int(centres[place]), -HOP_SAMPLES), HOP_SAMPLES)


def _inside(words: Iterable[ReferenceWord], first_frame: int, count: int) -> npt.NDArray[np.bool_]:
    """[count], false near the starts of `words`."""
    is_inside = np.ones(count, np.bool_)
    for word in words:
        start = word.first_frame - first_frame
        reach = _BORDER_FRAMES if word.is_exact else _GUESSED_BORDER_FRAMES
        is_inside[max(0, start - reach) : start + reach + 1] = False
    return is_inside


def _piece(words: Sequence[Word]) -> Piece:
    """The words with spaces between them, cleaned as for the ear."""
    first = words[0].char_start
    text = [" "] * (words[-1].char_end - first)
    for word in words:
        text[word.char_start - first : word.char_end - first] = word.text
    cleaned = speakable("".join(text))
    offsets = [first + offset for offset in cleaned.offsets]
    spoken = SpokenText(cleaned.spoken, offsets)
    return Piece(tuple(words), spoken, ends_clause=False, segment_end=None)
