"""The words of a context whose engine reports none: aligners find their times.

`WordPolicy` is the rule: the best time of each word that is known, and whether the word is due. A
word is published when the best source that may still answer has answered, or else at its deadline,
when playback is about to reach it, with the best time known by then. An estimate is better than a
time that arrives too late; but a word whose audio is not generated yet cannot be reached and waits
for it. `AlignedWords` applies the rule to a context: it finds the words in the text, knows when
playback reaches them, and asks the aligners.
"""

import re
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Reading,
    Segment,
    Word,
    WordTimestamp,
    earliest,
    ms_to_samples,
)
from voiceagent_tts.seam.aligner_messages import Aligned, AlignEvent
from voiceagent_tts.synthesizer.events import Source, WordCounts
from voiceagent_tts.synthesizer.words import (
    DELIVERY_S,
    MOVED_SAMPLES,
    OnTimes,
    Words,
    drop_behind,
    not_before,
)
from voiceagent_tts.text.cut import TimedWords
from voiceagent_tts.text.estimate import ESTIMATE_CONFIDENCE, SpeechClock, typical_samples
from voiceagent_tts.text.masked import said_word
from voiceagent_tts.text.words import split_words
from voiceagent_tts.word_times.aligners import AttachAligners

AHEAD_S = 0.15 + DELIVERY_S
"""Time from publishing a word to the moment when playback can reach it. The protocol promises
150 ms."""
_TIMER_S = 0.001
"""Added to a deadline so that rounding to samples cannot leave the word not yet due."""
_DOUBT_SAMPLES = ms_to_samples(300)
"""Two sources that differ by more than this about a word make its time doubtful."""
_AGREED_SAMPLES = ms_to_samples(200)
_ONLINE_SHARE = 0.7
"""Where forced and online aligner agree about a word, its start lies this share of the distance
from the forced time to the online time. Measured by `benchmarks.alignment` of commit 65aec34c:
91.2 % exact cuts at RTF 0.2, 88.8 % without."""
_DOUBTFUL_CONFIDENCE = 0.5
"""Highest confidence where two aligners disagree: only one of them can be right."""


class AlignedWords(Words):
    """Publishes the words of one context; arguments as for `Words` and `MakeWords`.

    Attributes:
        policy: chooses the times of the words, on the engine's clock.
    """

    def __init__(
        self,
        attach: AttachAligners,
        playout: PlayoutClock,
        listener: ListenerClock,
        recording: str,
        on_times: OnTimes,
        verbatim: Callable[[Word], Word] | None = None,
    ) -> None:
        super().__init__(playout, listener, verbatim)
        self._on_times = on_times
        self._aligners = attach(self._on_answer, recording)
        self.policy = WordPolicy(self._aligners.sources, self._aligners.voice_level)
        self.counts = self.policy.counts
        self._growing_words = GrowingWords()
        self._readings: deque[Reading] = deque()
        """Readings whose words are not complete."""

    @property
    def next_char(self) -> int | None:
        """Start of the next word in the text; None if none is expected."""
        return self.policy.next_char

    @property
    def is_complete(self) -> bool:
        """Whether all audio has arrived, all words are published and no better times are due."""
        return super().is_complete and not self.policy.sources

    @property
    def may_be_better(self) -> bool:
        """Whether a word may have another time in `best` than it left with."""
        return self.policy.may_be_better

    @property
    def aligner_lag_s(self) -> Mapping[Source, float]:
        """Longest time from audio to the aligner's answer, by aligner."""
        return self._aligners.lag_s

    # Text and audio in.

    def expect(self, segment: Segment, *, is_whole: bool) -> None:
        """Expect the words of `segment`; arguments as for `Words.expect`."""
        self._readings += segment.readings
        words = self._growing_words.push(segment.text)
        if is_whole:
            words += self._growing_words.finish()
        self._expect(words)

    def complete_word(self, char_end: int | None = None) -> None:
        """Expect the last word of the text so far, if it begins before `char_end`."""
        self._expect(self._growing_words.finish(char_end))

    def _expect(self, words: list[Word]) -> None:
        if self._readings:
            words = [self._said(word) for word in words]
        self.policy.expect(words)
        self._aligners.expect(words)

    def _said(self, word: Word) -> Word:
        readings: list[Reading] = []
        while self._readings and self._readings[0].char_start < word.char_end:
            readings.append(self._readings.popleft())
        if not readings:
            return word
        return Word(said_word(word.text, word.char_start, readings), word.char_start, word.char_end)

    def push_audio(self, chunk: AudioChunk, language: Callable[[], str]) -> None:
        """Measure the pace of the engine's next audio, and let the aligners hear it.

        `language` returns that of the speech so far.
        """
        self.policy.push_audio(chunk.pcm)
        self._aligners.push_audio(chunk, language)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the text before `char_end` is generated in the audio before `end_sample`."""
        self.complete_word(char_end)  # a run of the engine may have ended with it
        self.policy.end_segment(char_end, end_sample)
        self._aligners.end_segment(char_end, end_sample)

    def end_audio(self, now: float) -> None:
        """Record that the engine has sent all of its audio; ask for the missing words."""
        super().end_audio(now)
        self.policy.end_audio()
        if not self._aligners.finish(now):
            self._stop_aligning()

    # Times in.

    def add_exact(self, words: tuple[WordTimestamp, ...], *, is_cached: bool) -> None:
        """Add word times of a cached segment; others count only where no aligner is asked."""
        if not is_cached:
            return
        if words and not self.policy.expects(words[-1].word):
            self.complete_word()  # the segment ends with it
        # In a text that is fed token by token, a dash between two segments is in other words.
        expected = (each for each in words if self.policy.expects(each.word))
        self.policy.add_times(Source.CACHE, expected)

    def _on_answer(self, source: Source, event: AlignEvent) -> None:
        now, moved = time.monotonic(), list[WordTimestamp]()
        if isinstance(event, Aligned):
            self.add_aligned(source, event.words, event.tentative, now)
            moved = self.pop_moved()
        else:  # it has finished or failed
            self._aligners.wait_again(now)
            self.policy.drop_source(source)
        self._on_times(moved, now)

    def add_aligned(
        self,
        source: Source,
        words: tuple[WordTimestamp, ...],
        tentative: tuple[WordTimestamp, ...],
        now: float,
    ) -> None:
        """Add an aligner's final and tentative times."""
        self._aligners.wait_again(now)
        self.policy.add_times(source, words)
        if source is Source.ONLINE:
            self.policy.set_tentative(tentative)

    def _stop_aligning(self) -> None:
        self._aligners.close()
        for source in self._aligners.sources:
            self.policy.drop_source(source)

    # Words out.

    @property
    def due_at(self) -> float | None:
        """When `pop_due` must be called without further events; None if an event decides."""
        return earliest(self._deadline, self._aligners.due_at)

    @property
    def _deadline(self) -> float | None:
        """When `_reach` arrives at the next word; None if an event must come first."""
        playout_end = self._playout.playout_end
        if not self._playout.sent_samples or (start := self.policy.next_start) is None:
            return None
        char_start, char_limit = self.policy.next_char, self.listener.char_limit
        if char_start is None or (char_limit is not None and char_start >= char_limit):
            return None
        place, furthest = self.listener.to_listener(start, char_start), self._reach(playout_end)
        if place > furthest:
            return None
        return playout_end - (furthest - place) / SAMPLE_RATE_HZ + _TIMER_S

    def _reach(self, now: float) -> float:
        """The point that playback may reach before words can leave again, on the listener's clock.

        It is `AHEAD_S` ahead of playback, and so at most as far behind the audio that was sent.
        """
        ahead_s = AHEAD_S - self._playout.lead_s(now)
        return self._playout.sent_samples + ahead_s * SAMPLE_RATE_HZ

    def pop_due(self, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish at `now` (`time.monotonic()`), as the client wrote them."""
        if self._aligners.is_given_up(now):
            self._stop_aligning()
        words = super().pop_due(now)
        if super().is_complete and not self.is_complete:
            self._aligners.wait_for_better(now)
        return words

    def _pop_leaving(self, now: float) -> tuple[WordTimestamp, ...]:
        """Remove the words that leave now: up to `_reach`, and those with final times."""
        listener, reach = self.listener, self._reach(now)
        if self._is_broken_off:  # no word can be sent once the audio so far has left
            reach = max(reach, listener.end_sample - 1)
        return self.policy.pop_due(
            listener.to_engine(reach, in_break=-1),
            self._played_on_arrival(now),
            reach_char=listener.char_at(reach),
            char_limit=listener.char_limit,
            most=self._most_words,
        )

    def pop_moved(self) -> list[WordTimestamp]:
        """Published words with better times, if the time of one has moved; each time once."""
        return [*self._heard(self.policy.pop_moved())]

    @property
    def best(self) -> TimedWords:
        """The published words with the best times known now, as they are heard."""
        return self._heard(self.policy.best) if self.may_be_better else self.published

    # The end.

    def break_off(self) -> None:
        """Make the words that begin in the audio so far due: the engine sends no more audio."""
        super().break_off()
        self._stop_aligning()

    def take_back(self, char_end: int) -> None:
        """As `Words.take_back`, with the best times of these words."""
        super().take_back(char_end)
        drop_behind(self.policy.best, char_end)

    def stop(self) -> None:
        """Disconnect the aligners, and remember how loud the voice speaks; idempotent."""
        self._on_times = lambda moved, now: None  # the context, which holds this object
        self._aligners.stop(self.policy.speech_clock.level, self.listener.end_sample)


@dataclass(frozen=True, slots=True)
class _Known:
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

    Attributes:
        sources: those that may still send times.
        counts: sources and corrections of the published words.
        best: the published words with the best times known now, in order.
        may_be_better: whether a word may have another time in `best` than it left with.
    """

    def __init__(self, sources: Iterable[Source], voice_level: float = 0.0) -> None:
        self.counts = WordCounts()
        self.best: list[WordTimestamp] = []
        self.may_be_better = False
        self.sources = set(sources)
        self._voice_level = voice_level
        self.has_all_audio = False
        self._generated_char_end = 0  # the words before it lie before `_generated_end_sample`
        self._generated_end_sample = 0
        self._words: list[Word] = []
        self._usual_before = [0.0]
        """For each word, samples that the words before it usually take; as far as asked for."""
        self._places: dict[int, int] = {}  # a word's `char_start` to its place in `_words`
        self._known: dict[int, _Known] = {}
        self._tentative: dict[int, WordTimestamp] = {}
        self._published: list[WordTimestamp] = []
        self._told: list[WordTimestamp] = []  # each with the time that was returned last
        self._first_open = 0  # of the published words without a final time
        self._has_moved = False  # one of them, since it was returned

    @cached_property
    def speech_clock(self) -> SpeechClock:
        """The pace of the voice, for estimates."""
        return SpeechClock(self._voice_level)

    # Text and audio.

    def expect(self, words: Iterable[Word]) -> None:
        """Add words of the context, in order."""
        for word in words:
            self._places[word.char_start] = len(self._words)
            self._words.append(word)

    def expects(self, word: Word) -> bool:
        """Whether a word that begins where this one does was expected."""
        return word.char_start in self._places

    def push_audio(self, pcm: bytes) -> None:
        """Measure the pace of the engine's next audio (PCM16, 24 kHz)."""
        self.speech_clock.push(pcm)

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the words before `char_end` are generated in the audio up to `end_sample`."""
        self._generated_char_end, self._generated_end_sample = char_end, end_sample

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
            self._improve(place)
            usual = self._usual_samples_before(place)
            self.speech_clock.calibrate(known.timestamp.start_sample, usual)

    def set_tentative(self, timestamps: Iterable[WordTimestamp]) -> None:
        """Replace the tentative times of the online aligner."""
        before = self._tentative
        self._tentative = {self._places[time.word.char_start]: time for time in timestamps}
        for place in sorted(before.keys() | self._tentative.keys()):
            self._improve(place)

    def drop_source(self, source: Source) -> None:
        """Record that `source` will send no more times: it has finished or failed."""
        self.sources.discard(source)

    # Words out.

    def pop_due(
        self,
        reach_sample: int,
        played_sample: int,
        *,
        reach_char: int = 0,
        char_limit: int | None = None,
        most: int = sys.maxsize,
    ) -> tuple[WordTimestamp, ...]:
        """Publish the words that are due.

        Args:
            reach_sample: furthest point that playback may reach before words can be sent again.
            played_sample: furthest point of playback when the words arrive; no word is published
                with an earlier time.
            reach_char: playback may reach the end of the text before this character, so all words
                in it are due, whatever their times are.
            char_limit: no word that starts at this character or after it is published.
            most: number of words after which others wait for the next call.
        """
        first = len(self._published)
        while (char_start := self.next_char) is not None and len(self._published) < first + most:
            if char_limit is not None and char_start >= char_limit:
                break
            source, timestamp = self._choose(len(self._published))
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
        return self._start_if_made(*self._choose(len(self._published)))

    def known_between(
        self, char_start: int, char_end: int, is_final: bool
    ) -> tuple[WordTimestamp, ...] | None:
        """Return the times of the words that begin between two characters, in order.

        None while a word has none from the engine or an aligner; without `is_final`, also while a
        better source might still replace one.
        """
        first, last = (
            bisect_left(self._words, at, key=lambda word: word.char_start)
            for at in (char_start, char_end)
        )
        found = map(self._known.get, range(first, last))
        known = [k for k in found if k is not None and (is_final or self._is_settled(k.source))]
        return tuple(map(_with_doubt, known)) if len(known) == last - first else None

    @property
    def next_char(self) -> int | None:
        """Start of the next word in the text; None if none is expected."""
        left = self._words[len(self._published) : len(self._published) + 1]
        return left[0].char_start if left else None

    def pop_moved(self) -> list[WordTimestamp]:
        """The published words whose times are not final, if one of them has moved since.

        They are all words after the first of these: words keep their order in time.
        """
        first = self._first_open
        while self._first_open < len(self._published) and self._is_final(self._first_open):
            self._first_open += 1
        if not self._has_moved:
            return []
        self._has_moved = False
        start = self._told[first - 1].start_sample if first else 0
        self._told[first:] = best = [not_before(each, start) for each in self.best[first:]]
        return best

    def _is_final(self, place: int) -> bool:
        return (known := self._known.get(place)) is not None and self._is_settled(known.source)

    def _improve(self, place: int) -> None:
        """Update a published word in `best`, and the words after it that it moves."""
        is_moved = True
        while is_moved and place < len(self.best):
            if (known := self._known.get(place)) is not None:
                timestamp = _with_doubt(known)
            else:
                timestamp = self._tentative_of(place) or self._published[place]
            last, start = self.best[place], self.best[place - 1].start_sample if place else 0
            self.best[place] = best = not_before(timestamp, start)
            self.may_be_better |= best != self._published[place]
            moved_samples = abs(best.start_sample - self._told[place].start_sample)
            self._has_moved |= moved_samples > MOVED_SAMPLES
            is_moved, place = best.start_sample != last.start_sample, place + 1

    def _choose(self, place: int) -> tuple[Source, WordTimestamp]:
        if (known := self._known.get(place)) is not None:
            return known.source, _with_doubt(known)
        if (tentative := self._tentative_of(place)) is not None:
            return Source.TENTATIVE, tentative
        return Source.ESTIMATE, WordTimestamp(
            self._words[place], self._estimate(place), None, ESTIMATE_CONFIDENCE
        )

    def _tentative_of(self, place: int) -> WordTimestamp | None:
        tentative = self._tentative.get(place)
        # The aligner has confidence 0 in a word that it has only just heard, or not at all.
        if place == 0 and tentative is not None and tentative.confidence == 0.0:
            start = max(tentative.start_sample, self._first_speech)
            tentative = replace(tentative, start_sample=start)
        return tentative

    def _estimate(self, place: int) -> int:
        if place == 0:
            return self._first_speech
        usual = typical_samples(self._words[place - 1])
        start = self.speech_clock.sample_after(self.best[place - 1].start_sample, usual)
        if self.has_all_audio:
            return min(start, self.speech_clock.made_samples)
        is_generated = self._words[place].char_start < self._generated_char_end
        limit = min if is_generated else max  # it lies before the end of a segment, or after it
        return limit(start, self._generated_end_sample)

    def _usual_samples_before(self, place: int) -> float:
        while len(self._usual_before) <= place:
            word = self._words[len(self._usual_before) - 1]
            self._usual_before.append(self._usual_before[-1] + typical_samples(word))
        return self._usual_before[place]

    @property
    def _first_speech(self) -> int:
        # Only the online aligner recognizes a voice that is quieter than before.
        clock = self.speech_clock
        return clock.first_speech if Source.ONLINE in self.sources else clock.first_sound

    def _is_settled(self, source: Source) -> bool:
        return source >= max(self.sources, default=Source.ONLINE) and source >= Source.ONLINE

    def _is_due(self, source: Source, timestamp: WordTimestamp, reach_sample: int) -> bool:
        if self.has_all_audio and not self.sources:
            return True
        start = self._start_if_made(source, timestamp)
        return start is not None and start <= reach_sample

    def _start_if_made(self, source: Source, timestamp: WordTimestamp) -> int | None:
        """The start of the next word, in order; None while its audio may not be made yet."""
        start = max(timestamp.start_sample, self._earliest_start)
        return start if self._may_be_heard(source, start) else None

    @property
    def _earliest_start(self) -> int:
        """Start of the last word, as it was sent first or as it has moved since."""
        if not self._told:
            return 0
        return max(self._published[-1].start_sample, self._told[-1].start_sample)

    def _may_be_heard(self, source: Source, start: int) -> bool:
        """Whether the next word, at `start`, may be in the audio so far, or its time is known."""
        if self.has_all_audio or source >= Source.ONLINE:
            return True
        place = len(self._published)
        if self._words[place].char_start < self._generated_char_end:
            return True
        return start < self.speech_clock.made_samples and self._has_ended(place - 1)

    def _has_ended(self, place: int) -> bool:
        """Whether the word may be over: none ends before its vowel. Only aligners know whispers."""
        if place < 0 or Source.ONLINE not in self.sources:
            return True
        return self.speech_clock.was_loud_since(self.best[place].start_sample)

    def _publish(self, source: Source, timestamp: WordTimestamp, played_sample: int) -> None:
        self.counts.sources[source] += 1
        self.counts.late += timestamp.start_sample < played_sample
        earliest = max(played_sample, self._earliest_start)
        published = not_before(timestamp, earliest)
        for words in (self._published, self._told, self.best):
            words.append(published)
        self._improve(len(self.best) - 1)


def _with_doubt(known: _Known) -> WordTimestamp:
    timestamp = known.timestamp
    if not known.is_doubtful:
        return timestamp
    return replace(timestamp, confidence=min(timestamp.confidence, _DOUBTFUL_CONFIDENCE))


_MAX_GROWING_CHARS = 1_000
"""Length above which an unfinished word is split, so that it is not scanned with every delta."""
_SPOKEN = re.compile(r"[^\W_]")


class GrowingWords:
    """Splits a text that arrives in parts into the words that the whole text has."""

    def __init__(self) -> None:
        self._rest = ""
        self._char_start: int = 0
        self._unspoken_chars = 0
        """Length of the start of `_rest` that has no letter or digit, and is not scanned again."""

    def push(self, delta: str) -> list[Word]:
        """Append text; return the words that it completes: all but the last, which may grow."""
        words: list[Word] = []
        while delta:  # in parts, as a long word is split at the same place however it arrives
            room = max(1, _MAX_GROWING_CHARS - len(self._rest) + self._unspoken_chars)
            words += self._grown(delta[:room])
            delta = delta[room:]
        return words

    def _grown(self, delta: str) -> list[Word]:
        self._rest += delta
        words = self._split()
        start = words[-1].char_start - self._char_start if words else 0
        spoken = _SPOKEN.search(self._rest, max(start, self._unspoken_chars))
        self._unspoken_chars = spoken.start() if spoken else len(self._rest)
        if len(self._rest) - self._unspoken_chars < _MAX_GROWING_CHARS:
            words = words[:-1]
        if words:
            self._drop(words[-1].char_end - self._char_start)
        return words

    def _drop(self, chars: int) -> None:
        self._char_start += chars
        self._rest, self._unspoken_chars = self._rest[chars:], 0

    def finish(self, char_end: int | None = None) -> list[Word]:
        """Return the remaining words, if before `char_end`; later text begins another word."""
        words = self._split()
        if char_end is not None and not (words and words[0].char_start < char_end):
            return []
        self._drop(len(self._rest))
        return words

    def _split(self) -> list[Word]:
        unspoken = self._unspoken_chars
        words = split_words(self._rest[unspoken:], self._char_start + unspoken)
        if words and unspoken:  # the first word begins with the first visible character
            start = len(self._rest) - len(self._rest.lstrip())
            end = words[0].char_end
            text = self._rest[start : end - self._char_start]
            words[0] = Word(text, self._char_start + start, end)
        return words
