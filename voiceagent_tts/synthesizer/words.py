"""The words of a context: each published once, in order, before it can be heard.

`Words` is for an engine that reports its words: their times are final, and they are published as
they come, unless they wait for a break. The room `word_times` has those of other engines, whose
times aligners find. The current time is passed in.
"""

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from voiceagent_tts.audio.listener_clock import ListenerClock
from voiceagent_tts.core import (
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Segment,
    Word,
    WordTimestamp,
    ms_to_samples,
)
from voiceagent_tts.synthesizer.events import Source, WordCounts
from voiceagent_tts.text.cut import ChangedWords, TimedWords

DELIVERY_S = 0.02  # longest delay of a timer and a socket together
WORDS_AT_ONCE = 150  # more than a segment has; for text without sound, thousands may be due
MOVED_SAMPLES = ms_to_samples(20)
"""A time that was moved by more than this, to keep the words in order, is not exact. A published
time that an aligner has corrected by more than this is sent again."""
_MOVED_CONFIDENCE = 0.5
"""Highest confidence of a moved time: playback or another word was already at its place."""


class Words:
    """Publishes the words of one context as its engine reports them.

    Args:
        playout: how much of the audio was sent, and when it is played.
        listener: maps the engine's clock to the listener's.
        verbatim: returns a word with the client's characters; None where it has them.
    """

    def __init__(
        self,
        playout: PlayoutClock,
        listener: ListenerClock,
        verbatim: Callable[[Word], Word] | None = None,
    ) -> None:
        self.listener = listener
        self.counts = WordCounts()
        self.published: list[WordTimestamp] = []  # so far, in order, as they are heard
        self.worst_lag_s = 0.0  # longest time from the start of a word in playback to its sending
        self.has_all_audio = False  # from the engine
        self._playout = playout
        self._verbatim = verbatim
        self._is_broken_off = False
        self._reported: deque[tuple[Source, WordTimestamp]] = deque()  # and not yet published
        self._last_start = 0  # of the last word that was due, on the engine's clock

    @property
    def next_char(self) -> int | None:
        """Start of the next word in the text; None if none is expected."""
        return self._reported[0][1].word.char_start if self._reported else None

    @property
    def is_complete(self) -> bool:
        """Whether all audio has arrived, all words are published and no better times are due."""
        return self.has_all_audio and self.next_char is None

    @property
    def aligner_lag_s(self) -> Mapping[Source, float]:
        """Longest time from audio to the aligner's answer, by aligner."""
        return {}

    # Text, audio and times in. The engine itself finds the words in the text.

    def expect(self, segment: Segment, *, is_whole: bool) -> None:
        """Expect the words of the text that is spoken next; `is_whole` if the last is complete."""

    def complete_word(self, char_end: int | None = None) -> None:
        """Expect the last word of the text so far, if it begins before `char_end`."""

    def push_audio(self, chunk: AudioChunk, language: Callable[[], str]) -> None:
        """Receive the engine's next audio; `language` returns that of the speech so far."""

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the text before `char_end` is generated in the audio before `end_sample`."""

    def end_audio(self, now: float) -> None:
        """Record that the engine has sent all of its audio; ask for the missing words."""
        self.has_all_audio = True

    def add_exact(self, words: tuple[WordTimestamp, ...], *, is_cached: bool) -> None:
        """Add the engine's own words, in order; cached ones are those of a whole segment."""
        source = Source.CACHE if is_cached else Source.NATIVE
        self._reported += ((source, word) for word in words)

    # Words out.

    @property
    def due_at(self) -> float | None:
        """When `pop_due` must be called without further events; None, as here, if these decide."""
        return None

    def pop_due(self, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish at `now` (`time.monotonic()`), as the client wrote them."""
        due = self._pop_leaving(now) if self.next_char is not None else ()
        # Stretched audio is shorter than its words report.
        start = self.published[-1].start_sample if self.published else 0
        words = tuple(not_before(each, start) for each in self._heard(due)) if due else ()
        if words:
            past_samples = self._playout.played_samples(now) - words[0].start_sample
            self.worst_lag_s = max(self.worst_lag_s, past_samples / SAMPLE_RATE_HZ)
            self.published += words
        return words

    def _pop_leaving(self, now: float) -> Sequence[WordTimestamp]:
        """Remove the words that leave now, on the engine's clock: all that wait for no break."""
        played, limit = self._played_on_arrival(now), self.listener.char_limit
        due: list[WordTimestamp] = []
        while self._reported and len(due) < self._most_words:
            source, word = self._reported[0]
            if limit is not None and word.word.char_start >= limit:
                break
            self._reported.popleft()
            self.counts.sources[source] += 1
            self.counts.late += word.start_sample < played
            due.append(not_before(word, max(played, self._last_start)))
            self._last_start = due[-1].start_sample
        return due

    @property
    def _most_words(self) -> int:
        return sys.maxsize if self._is_broken_off else WORDS_AT_ONCE

    def _played_on_arrival(self, now: float) -> int:
        """Furthest point of playback when words that leave now arrive, on the engine's clock."""
        on_arrival = self._playout.played_samples(now) + DELIVERY_S * SAMPLE_RATE_HZ
        return self.listener.to_engine(min(on_arrival, self._playout.sent_samples), in_break=0)

    @property
    def may_be_better(self) -> bool:
        """Whether a word may have another time in `best` than it left with."""
        return False

    @property
    def best(self) -> TimedWords:
        """The published words with the best times known now, as they are heard.

        A word that was sent with an estimate may turn out not to have been reached.
        """
        return self.published

    def _heard(self, words: Sequence[WordTimestamp]) -> Sequence[WordTimestamp] | ChangedWords:
        """Words at their places on the listener's clock, with the client's characters."""
        is_plain = self.listener.is_identity and self._verbatim is None
        return words if is_plain else ChangedWords(words, self._as_heard)

    def _as_heard(self, word: WordTimestamp) -> WordTimestamp:
        place = self.listener.place(word)
        return replace(place, word=self._verbatim(word.word)) if self._verbatim else place

    # The end.

    def break_off(self) -> None:
        """Make the words that begin in the audio so far due: the engine sends no more audio."""
        self._is_broken_off = True

    def take_back(self, char_end: int) -> None:
        """Remove the published words that end after a character: they were not spoken."""
        drop_behind(self.published, char_end)

    def stop(self) -> None:
        """Stop the search for words; idempotent."""


OnTimes = Callable[[list[WordTimestamp], float], None]
"""Receives better times of published words, after each answer of an aligner, and when it came."""

MakeWords = Callable[
    [PlayoutClock, ListenerClock, str, OnTimes, Callable[[Word], Word] | None], Words
]
"""Makes the words of a context whose engine reports none, given its clocks, what its voice sounds
like (`Voice.recording`), a receiver of better times, and `verbatim` as for `Words`."""


def char_end_of(timestamp: WordTimestamp) -> int:
    """The end of a word in the text."""
    return timestamp.word.char_end


def drop_behind(words: list[WordTimestamp], char_end: int) -> None:
    """Remove the words that end after a character."""
    del words[bisect_right(words, char_end, key=char_end_of) :]


def not_before(timestamp: WordTimestamp, earliest_sample: int) -> WordTimestamp:
    """Move a start that is earlier; the end is never before the start."""
    end, start_sample = timestamp.end_sample, max(timestamp.start_sample, earliest_sample)
    is_moved = start_sample - timestamp.start_sample > MOVED_SAMPLES
    return WordTimestamp(
        timestamp.word,
        start_sample,
        None if end is None else max(end, start_sample),
        min(timestamp.confidence, _MOVED_CONFIDENCE) if is_moved else timestamp.confidence,
    )
