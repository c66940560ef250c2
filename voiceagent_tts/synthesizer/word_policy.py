"""Which time a word gets and when it leaves: one rule for every source of word times.

Every word leaves once, in order. It leaves when the best source that may still speak has spoken, or
else when playback is about to reach it, with the best time that is known by then; a guess is better
than a time that comes too late. All positions are samples on the engine's clock. What playback can
reach is passed in: this module knows no clock, no processes and no listeners.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.text.estimate import SpeechClock, typical_samples

_DOUBT_SAMPLES = ms_to_samples(300)
"""Two sources that differ by more than this about a word make its time doubtful."""
_AGREED_SAMPLES = ms_to_samples(200)
_ONLINE_SHARE = 0.7
"""Of the distance between the forced aligner's time and the online one's, where both mean the same
place. Measured by `benchmarks.alignment`: 91.2 % exact cuts at RTF 0.2, 88.8 without."""
_MOVED_SAMPLES = ms_to_samples(20)
"""A time that had to be moved by more than this to come in order is not exact."""


class Source(IntEnum):
    """Where the time of a word comes from; the higher, the better."""

    ESTIMATE = 0
    """The usual pace of speech."""
    OUTLOOK = 1
    """What the online aligner takes to be so of words that it has not committed; it may say of some
    that they are certain."""
    ONLINE = 2
    """What the online aligner has committed."""
    FORCED = 3
    """The forced aligner."""
    NATIVE = 4
    """The engine's own words."""


@dataclass(slots=True)
class WordFigures:
    """How the words of a context got their times.

    Attributes:
        sources: words that left, by source.
        late: of those, the ones whose time lay behind what could have been played by then; they
            left with the moment of their leaving instead.
        doubtful: words about which two aligners disagreed.
    """

    sources: Counter[Source] = field(default_factory=Counter[Source])
    late: int = 0
    doubtful: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """The time of a word from an aligner or the engine."""

    timestamp: WordTimestamp
    source: Source
    is_doubtful: bool = False

    def best_with(self, other: "_Known") -> "_Known":
        """What two sources know together, doubtful where they are far apart.

        Aligners that agree make different mistakes: the forced one tells time in steps of 80 ms.
        """
        worse, best = sorted((self, other), key=lambda known: known.source)
        distance = worse.timestamp.start_sample - best.timestamp.start_sample
        is_doubtful = self.is_doubtful or abs(distance) > _DOUBT_SAMPLES
        timestamp = best.timestamp
        if (worse.source, best.source) == (Source.ONLINE, Source.FORCED) and (
            abs(distance) <= _AGREED_SAMPLES
        ):
            start = timestamp.start_sample + round(_ONLINE_SHARE * distance)
            timestamp = replace(timestamp, start_sample=start)
        return _Known(timestamp, best.source, is_doubtful)


class WordPolicy:
    """One context's words.

    Args:
        sources: those that may speak. What nobody says in time is estimated.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.figures = WordFigures()
        self._sources = set(sources)
        self._speech_clock = SpeechClock()
        self._is_made = False  # all audio is there
        self._spoken_char_end = 0  # the words before it lie before `_spoken_end_sample`
        self._spoken_end_sample = 0
        self._words: list[Word] = []
        self._usual_before = [0.0]  # usual samples of all words before each one
        self._places: dict[int, int] = {}  # a word's `char_start` to its place in `_words`
        self._known: dict[int, _Known] = {}
        self._outlook: dict[int, WordTimestamp] = {}
        self._taken: list[WordTimestamp] = []
        self._last_start = 0

    # What is said.

    def expect(self, words: Iterable[Word]) -> None:
        """More words of the context, in order."""
        for word in words:
            self._places[word.char_start] = len(self._words)
            self._words.append(word)
            self._usual_before.append(self._usual_before[-1] + typical_samples(word))

    def listen(self, pcm: bytes) -> None:
        """The engine's next audio: PCM16, 24 kHz."""
        self._speech_clock.push(pcm)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """The words before `char_end` have been spoken in the audio up to `end_sample`."""
        self._spoken_char_end, self._spoken_end_sample = char_end, end_sample

    def end_audio(self) -> None:
        """The engine has made all of its audio."""
        self._is_made = True

    # What the sources say.

    def tell(self, source: Source, timestamps: Iterable[WordTimestamp]) -> None:
        """Final times of words that are expected, from `source`."""
        for timestamp in timestamps:
            place = self._places[timestamp.word.char_start]
            known = _Known(timestamp, source)
            if (other := self._known.get(place)) is not None:
                known = known.best_with(other)
                self.figures.doubtful += known.is_doubtful and not other.is_doubtful
            self._known[place] = known
            self._speech_clock.calibrate(known.timestamp.start_sample, self._usual_before[place])

    def expect_at(self, timestamps: Iterable[WordTimestamp]) -> None:
        """The outlook: replaces the one before."""
        self._outlook = {self._places[time.word.char_start]: time for time in timestamps}

    def lose(self, source: Source) -> None:
        """Nothing more will come of `source`: it has said all, or it has failed."""
        self._sources.discard(source)

    # What leaves.

    def take(self, reach_sample: int, played_sample: int) -> tuple[WordTimestamp, ...]:
        """The words that leave now.

        Args:
            reach_sample: playback may get here before there is another chance to send words.
            played_sample: playback may be here when they arrive; none is given an earlier time.
        """
        first = len(self._taken)
        while len(self._taken) < len(self._words):
            source, timestamp = self._best(len(self._taken))
            if not self._is_settled(source) and not self._is_due(source, timestamp, reach_sample):
                break
            self._take(source, timestamp, played_sample)
        return tuple(self._taken[first:])

    @property
    def next_start(self) -> int | None:
        """Where the next word begins by what is known now; None where none is expected."""
        if len(self._taken) == len(self._words):
            return None
        _, timestamp = self._best(len(self._taken))
        return max(timestamp.start_sample, self._last_start)

    @property
    def awaits_answers(self) -> bool:
        """Whether an aligner may still say something."""
        return bool(self._sources - {Source.NATIVE})

    @property
    def next_char(self) -> int | None:
        """Where the next word begins in the text; None where none is expected."""
        left = self._words[len(self._taken) : len(self._taken) + 1]
        return left[0].char_start if left else None

    def refined(self) -> list[WordTimestamp] | None:
        """All words that have left with the best times known now; None where those are the same."""
        refined: list[WordTimestamp] = []
        start = 0
        for place, taken in enumerate(self._taken):
            known = self._known.get(place)
            timestamp = self._outlook.get(place, taken) if known is None else _judged(known)
            start = max(start, timestamp.start_sample)
            refined.append(_from(timestamp, start))
        return None if refined == self._taken else refined

    def _best(self, place: int) -> tuple[Source, WordTimestamp]:
        if (known := self._known.get(place)) is not None:
            return known.source, _judged(known)
        if (expected := self._outlook.get(place)) is not None:
            return Source.OUTLOOK, expected
        return Source.ESTIMATE, WordTimestamp(
            self._words[place], self._estimate(place), None, False
        )

    def _estimate(self, place: int) -> int:
        if place == 0:
            return self._speech_clock.first_sound
        usual = self._usual_before[place] - self._usual_before[place - 1]
        start = self._speech_clock.sample_after(self._begun_at(place - 1), usual)
        if self._is_made:
            return min(start, self._speech_clock.made_samples)
        is_spoken = self._words[place].char_start < self._spoken_char_end
        return min(start, self._spoken_end_sample) if is_spoken else start

    def _begun_at(self, place: int) -> int:
        """Where a word that has left began, by the best that is known of it by now."""
        if (known := self._known.get(place)) is not None:
            return known.timestamp.start_sample
        return self._outlook.get(place, self._taken[place]).start_sample

    def _is_settled(self, source: Source) -> bool:
        """Whether no better time can come."""
        return source >= max(self._sources, default=Source.ONLINE) and source >= Source.ONLINE

    def _is_due(self, source: Source, timestamp: WordTimestamp, reach_sample: int) -> bool:
        if self._is_made and not self._sources:
            return True
        if self._speech_clock.made_samples == 0:
            return False
        is_first_guess = (
            not self._taken and source is Source.ESTIMATE
        )  # it leaves ahead of all audio
        return is_first_guess or max(timestamp.start_sample, self._last_start) <= reach_sample

    def _take(self, source: Source, timestamp: WordTimestamp, played_sample: int) -> None:
        self.figures.sources[source] += 1
        self.figures.late += timestamp.start_sample < played_sample
        self._last_start = max(timestamp.start_sample, played_sample, self._last_start)
        self._taken.append(_from(timestamp, self._last_start))


def _judged(known: _Known) -> WordTimestamp:
    timestamp = known.timestamp
    return replace(timestamp, is_exact=timestamp.is_exact and not known.is_doubtful)


def _from(timestamp: WordTimestamp, start_sample: int) -> WordTimestamp:
    """`timestamp` from a start that is no earlier than its own; no end lies before it."""
    end = timestamp.end_sample
    is_moved = start_sample - timestamp.start_sample > _MOVED_SAMPLES
    return WordTimestamp(
        timestamp.word,
        start_sample,
        None if end is None else max(end, start_sample),
        timestamp.is_exact and not is_moved,
    )
