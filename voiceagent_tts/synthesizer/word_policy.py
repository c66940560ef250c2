"""Chooses the time of each word and decides whether the word is due, for all sources of times.

Every word is published once, in order: when the best source that may still answer has answered, or
else at its deadline, when playback is about to reach it, with the best time known by then. An
estimate is better than a time that arrives too late; but a word whose audio is not generated yet
cannot be reached and waits for it. All positions are samples on the engine's clock. How far
playback can reach is passed in, so this module applies the deadline without a clock; `Timeline`
computes when the deadline is. Knows no processes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from voiceagent_tts.core import Word, WordTimestamp, ms_to_samples
from voiceagent_tts.text.estimate import ESTIMATE_CONFIDENCE, SpeechClock, typical_samples

_DOUBT_SAMPLES = ms_to_samples(300)
"""Two sources that differ by more than this about a word make its time doubtful."""
_AGREED_SAMPLES = ms_to_samples(200)
_ONLINE_SHARE = 0.7
"""Where forced and online aligner agree about a word, its start lies this share of the distance
from the forced time to the online time. Measured by `benchmarks.alignment`: 91.2 % exact cuts at
RTF 0.2, 88.8 % without."""
_MOVED_SAMPLES = ms_to_samples(20)
"""A time that was moved by more than this, to keep the words in order, is not exact."""
_MOVED_CONFIDENCE = 0.5
"""Highest confidence of a moved time: playback or another word was already at its place."""
_DOUBTFUL_CONFIDENCE = 0.5
"""Highest confidence where two aligners disagree: only one of them can be right."""


class Source(IntEnum):
    """Sources of a word's time; the higher number is the better source."""

    ESTIMATE = 0
    """The usual pace of speech."""
    TENTATIVE = 1
    """The online aligner's times of words that it may still change, though some are exact."""
    ONLINE = 2
    """The online aligner's committed times."""
    FORCED = 3
    """The forced aligner."""
    NATIVE = 4
    """The engine's own words."""
    CACHE = 5
    """Stored with the audio of a cached phrase."""

    @property
    def label(self) -> str:
        """Name of the source in `/metrics`."""
        # The metric names tentative times by an older word, which dashboards rely on.
        return "outlook" if self is Source.TENTATIVE else self.name.lower()


@dataclass(slots=True)
class WordCounts:
    """Sources and corrections of the words of a context.

    Attributes:
        sources: words published, by source.
        late: words published when playback might already have passed their start; they were moved
            to the earliest time still ahead of playback.
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
        """Combine the times of two sources; doubtful if they are far apart.

        If both agree, a time between theirs is better than either: their errors are independent,
        and the forced aligner's times are multiples of 80 ms.
        """
        worse, best = sorted((self, other), key=lambda known: known.source)
        distance = worse.timestamp.start_sample - best.timestamp.start_sample
        is_doubtful = self.is_doubtful or abs(distance) > _DOUBT_SAMPLES
        timestamp = best.timestamp
        if (worse.source, best.source) == (Source.ONLINE, Source.FORCED) and (
            abs(distance) <= _AGREED_SAMPLES
        ):
            start = timestamp.start_sample + round(_ONLINE_SHARE * distance)
            confidence = max(timestamp.confidence, worse.timestamp.confidence)
            timestamp = replace(timestamp, start_sample=start, confidence=confidence)
        return _Known(timestamp, best.source, is_doubtful)


class WordPolicy:
    """Decides the time of every word of one context, and when it is published.

    Args:
        sources: sources that may send times. A word without a time at its deadline is estimated.
        voice_level: as for `SpeechClock`.

    Attributes:
        counts: sources and corrections of the published words.
        has_all_audio: whether the engine has sent all of its audio.
    """

    def __init__(self, sources: Iterable[Source], voice_level: float = 0.0) -> None:
        self.counts = WordCounts()
        self._sources = set(sources)
        self._speech_clock = SpeechClock(voice_level)
        self.has_all_audio = False
        self._spoken_char_end = 0  # the words before it lie before `_spoken_end_sample`
        self._spoken_end_sample = 0
        self._words: list[Word] = []
        self._usual_before = [0.0]  # for each word, samples that the words before it usually take
        self._places: dict[int, int] = {}  # a word's `char_start` to its place in `_words`
        self._known: dict[int, _Known] = {}
        self._tentative: dict[int, WordTimestamp] = {}
        self._published: list[WordTimestamp] = []
        self._last_start = 0

    # Text and audio.

    def expect(self, words: Iterable[Word]) -> None:
        """Add words of the context, in order."""
        for word in words:
            self._places[word.char_start] = len(self._words)
            self._words.append(word)
            self._usual_before.append(self._usual_before[-1] + typical_samples(word))

    def push_audio(self, pcm: bytes) -> None:
        """Measure the pace of the engine's next audio (PCM16, 24 kHz)."""
        self._speech_clock.push(pcm)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the words before `char_end` are spoken in the audio up to `end_sample`."""
        self._spoken_char_end, self._spoken_end_sample = char_end, end_sample

    def end_audio(self) -> None:
        """Record that the engine has sent all of its audio."""
        self.has_all_audio = True

    # Times of the sources.

    def add_times(self, source: Source, timestamps: Iterable[WordTimestamp]) -> None:
        """Add final times of expected words from `source`."""
        for timestamp in timestamps:
            place = self._places[timestamp.word.char_start]
            known = _Known(timestamp, source)
            if (other := self._known.get(place)) is not None:
                known = known.best_with(other)
                self.counts.doubtful += known.is_doubtful and not other.is_doubtful
            self._known[place] = known
            self._speech_clock.calibrate(known.timestamp.start_sample, self._usual_before[place])

    def set_tentative(self, timestamps: Iterable[WordTimestamp]) -> None:
        """Replace the tentative times of the online aligner."""
        self._tentative = {self._places[time.word.char_start]: time for time in timestamps}

    def drop_source(self, source: Source) -> None:
        """Record that `source` will send no more times: it has finished or failed."""
        self._sources.discard(source)

    # Words out.

    def pop_due(
        self,
        reach_sample: int,
        played_sample: int,
        *,
        reach_char: int = 0,
        char_limit: int | None = None,
    ) -> tuple[WordTimestamp, ...]:
        """Publish the words that are due.

        Args:
            reach_sample: furthest point that playback may reach before words can be sent again.
            played_sample: furthest point of playback when the words arrive; no word is published
                with an earlier time.
            reach_char: playback may reach the end of the text before this character, so all words
                in it are due, whatever their times are.
            char_limit: no word that starts at this character or behind it is published.
        """
        first = len(self._published)
        while (char_start := self.next_char) is not None:
            if char_limit is not None and char_start >= char_limit:
                break
            source, timestamp = self._best(len(self._published))
            is_due = char_start < reach_char or self._is_due(source, timestamp, reach_sample)
            if not is_due and not self._is_settled(source):
                break
            self._publish(source, timestamp, played_sample)
        return tuple(self._published[first:])

    @property
    def next_start(self) -> int | None:
        """The best known start of the next word, in samples.

        None if no word is expected, or if the next one waits for its audio.
        """
        if len(self._published) == len(self._words):
            return None
        source, timestamp = self._best(len(self._published))
        start = max(timestamp.start_sample, self._last_start)
        return start if self._may_be_heard(source, start) else None

    @property
    def level(self) -> float:
        """As of `SpeechClock`."""
        return self._speech_clock.level

    def known_between(
        self, char_start: int, char_end: int, is_final: bool
    ) -> tuple[WordTimestamp, ...] | None:
        """Return the times of the words that begin between two characters.

        Args:
            char_start: offset in the context's text.
            char_end: offset of the first character after the span.
            is_final: whether a time is taken that a better source might still replace.

        Returns:
            The times in order; None while a word has none from the engine or an aligner.
        """
        first, last = (
            bisect_left(self._words, at, key=_char_start) for at in (char_start, char_end)
        )
        known = [self._known.get(place) for place in range(first, last)]
        times: list[WordTimestamp] = []
        for each in known:
            if each is None or not (is_final or self._is_settled(each.source)):
                return None
            times.append(_with_doubt(each))
        return tuple(times)

    @property
    def awaits_aligners(self) -> bool:
        """Whether an aligner may still send times."""
        return bool(self._sources - {Source.NATIVE})

    @property
    def next_char(self) -> int | None:
        """Start of the next word in the text; None if none is expected."""
        left = self._words[len(self._published) : len(self._published) + 1]
        return left[0].char_start if left else None

    def refined(self) -> list[WordTimestamp] | None:
        """All published words with the best times known now; None where no time is better."""
        refined: list[WordTimestamp] = []
        start = 0
        for place, published in enumerate(self._published):
            known = self._known.get(place)
            timestamp = (
                self._tentative.get(place, published) if known is None else _with_doubt(known)
            )
            start = max(start, timestamp.start_sample)
            refined.append(_moved_to(timestamp, start))
        return None if refined == self._published else refined

    def _best(self, place: int) -> tuple[Source, WordTimestamp]:
        if (known := self._known.get(place)) is not None:
            return known.source, _with_doubt(known)
        if (tentative := self._tentative.get(place)) is not None:
            # The aligner has confidence 0 in a word that it has only just heard, or not at all.
            if place == 0 and tentative.confidence == 0.0:
                start = max(tentative.start_sample, self._first_speech)
                tentative = replace(tentative, start_sample=start)
            return Source.TENTATIVE, tentative
        return Source.ESTIMATE, WordTimestamp(
            self._words[place], self._estimate(place), None, ESTIMATE_CONFIDENCE
        )

    def _estimate(self, place: int) -> int:
        if place == 0:
            return self._first_speech
        usual = self._usual_before[place] - self._usual_before[place - 1]
        start = self._speech_clock.sample_after(self._start_of(place - 1), usual)
        if self.has_all_audio:
            return min(start, self._speech_clock.made_samples)
        is_spoken = self._words[place].char_start < self._spoken_char_end
        limit = min if is_spoken else max  # the word lies before the end of a segment, or after it
        return limit(start, self._spoken_end_sample)

    @property
    def _first_speech(self) -> int:
        # Only the online aligner recognizes a voice that is quieter than before.
        clock = self._speech_clock
        return clock.first_speech if Source.ONLINE in self._sources else clock.first_sound

    def _start_of(self, place: int) -> int:
        """Return the start of a published word by the best time known now."""
        if (known := self._known.get(place)) is not None:
            return known.timestamp.start_sample
        return self._tentative.get(place, self._published[place]).start_sample

    def _is_settled(self, source: Source) -> bool:
        """Whether no better source may still answer."""
        return source >= max(self._sources, default=Source.ONLINE) and source >= Source.ONLINE

    def _is_due(self, source: Source, timestamp: WordTimestamp, reach_sample: int) -> bool:
        if self.has_all_audio and not self._sources:
            return True
        start = max(timestamp.start_sample, self._last_start)
        return self._may_be_heard(source, start) and start <= reach_sample

    def _may_be_heard(self, source: Source, start: int) -> bool:
        """Whether the next word, at `start`, may be in the audio so far, or its time is known."""
        if self.has_all_audio or source >= Source.ONLINE:
            return True
        place = len(self._published)
        if self._words[place].char_start < self._spoken_char_end:
            return True
        return start < self._speech_clock.made_samples and self._has_ended(place - 1)

    def _has_ended(self, place: int) -> bool:
        """Whether the word may be over: none ends before its vowel. Only aligners know whispers."""
        if place < 0 or Source.ONLINE not in self._sources:
            return True
        return self._speech_clock.was_loud_since(self._start_of(place))

    def _publish(self, source: Source, timestamp: WordTimestamp, played_sample: int) -> None:
        self.counts.sources[source] += 1
        self.counts.late += timestamp.start_sample < played_sample
        self._last_start = max(timestamp.start_sample, played_sample, self._last_start)
        self._published.append(_moved_to(timestamp, self._last_start))


def _char_start(word: Word) -> int:
    return word.char_start


def _with_doubt(known: _Known) -> WordTimestamp:
    timestamp = known.timestamp
    if not known.is_doubtful:
        return timestamp
    return replace(timestamp, confidence=min(timestamp.confidence, _DOUBTFUL_CONFIDENCE))


def _moved_to(timestamp: WordTimestamp, start_sample: int) -> WordTimestamp:
    """Move a start to `start_sample`, which is not earlier; the end is never before the start."""
    end = timestamp.end_sample
    is_moved = start_sample - timestamp.start_sample > _MOVED_SAMPLES
    return WordTimestamp(
        timestamp.word,
        start_sample,
        None if end is None else max(end, start_sample),
        min(timestamp.confidence, _MOVED_CONFIDENCE) if is_moved else timestamp.confidence,
    )
