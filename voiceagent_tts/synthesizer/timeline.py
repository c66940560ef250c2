"""From an engine's clock to its listener's: stretched audio, and words before they are heard.

A context's audio goes in as the engine generated it and comes out as it is played; words come out
on the same clock, when the policy publishes them. Computes the deadline of the next word. Knows no
processes, no timers, no pacing and no sockets.
"""

import math
from collections.abc import Iterable

from voiceagent_tts.audio.stretch import HELD_SAMPLES, TimeStretch
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Word,
    WordTimestamp,
)
from voiceagent_tts.synthesizer.word_policy import Source, WordCounts, WordPolicy
from voiceagent_tts.text.words import GrowingWords

_DELIVERY_S = 0.02
"""Longest delay of a timer and a socket together."""
AHEAD_S = 0.15 + _DELIVERY_S
"""Time from publishing a word to the moment when playback can reach it. The protocol promises
150 ms."""
_TIMER_S = 0.001
"""Added to a deadline so that rounding to samples cannot leave the word not yet due."""


class Timeline:
    """Maps one context's engine audio and word times onto the listener's clock.

    Args:
        speed: how much faster than the engine's audio the listener's is; 1.0 where the engine
            itself speaks at the requested speed.
        sources: sources that may send word times.

    Attributes:
        end_sample: end of the audio so far, on the listener's clock.
    """

    def __init__(self, speed: float, sources: Iterable[Source]) -> None:
        sources = frozenset(sources)
        self.end_sample = 0
        self._speed = speed
        self._stretch = None if speed == 1.0 else TimeStretch(speed)
        self._policy = WordPolicy(sources)
        self._growing_words = None if Source.NATIVE in sources else GrowingWords()

    # The engine's clock.

    def expect_text(self, text: str, *, is_whole: bool) -> list[Word]:
        """Add text whose words will be spoken.

        Args:
            text: the part that follows all parts before.
            is_whole: whether its last word is complete.

        Returns:
            The words that it completes; none where the engine itself sends its words.
        """
        if self._growing_words is None:
            return []
        words = self._growing_words.push(text)
        if is_whole:
            words += self._growing_words.finish()
        self._policy.expect(words)
        return words

    def add_times(self, source: Source, timestamps: tuple[WordTimestamp, ...]) -> None:
        """Add final times from `source`."""
        if source is Source.NATIVE:
            self._policy.expect(timestamp.word for timestamp in timestamps)
        self._policy.add_times(source, timestamps)

    def set_tentative(self, timestamps: tuple[WordTimestamp, ...]) -> None:
        """Replace the tentative times of the online aligner."""
        self._policy.set_tentative(timestamps)

    def drop_source(self, source: Source) -> None:
        """Record that `source` will send no more times."""
        self._policy.drop_source(source)

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Return the engine's next audio at the listener's speed, as far as it is stretched."""
        if self._growing_words is not None:
            self._policy.push_audio(chunk.pcm)
        if self._stretch is not None:
            return self._append(self._stretch.push(chunk.pcm))
        self.end_sample = chunk.end_sample
        return chunk

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """Record that the text before `char_end` is spoken in the audio up to `end_sample`."""
        self._policy.end_segment(char_end, end_sample)

    def end_audio(self) -> AudioChunk | None:
        """Return the rest of the audio; the engine has sent all of it."""
        self._policy.end_audio()
        return None if self._stretch is None else self._append(self._stretch.finish())

    def to_engine_samples(self, samples: int) -> int:
        """Return the samples that the engine must generate so that `samples` can be played."""
        return samples if self._stretch is None else round(samples * self._speed) + HELD_SAMPLES

    # The listener's clock.

    def pop_due(self, clock: PlayoutClock, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish at `now` (`time.monotonic()`)."""
        ahead_s = AHEAD_S - clock.lead_s(now)
        reach = (clock.sent_samples + ahead_s * SAMPLE_RATE_HZ) * self._speed
        on_arrival = clock.played_samples(now) + _DELIVERY_S * SAMPLE_RATE_HZ
        played = min(on_arrival, clock.sent_samples) * self._speed
        due = self._policy.pop_due(math.ceil(reach), math.ceil(played))
        return tuple(map(self._place, due))

    def next_due_at(self, clock: PlayoutClock) -> float | None:
        """Return when the next word is due without further events; None if an event decides."""
        start = self._policy.next_start
        if start is None or not clock.sent_samples:
            return None
        unsent_s = (start / self._speed - clock.sent_samples) / SAMPLE_RATE_HZ
        if unsent_s > AHEAD_S:
            return None
        return clock.playout_end + unsent_s - AHEAD_S + _TIMER_S

    @property
    def has_all_audio(self) -> bool:
        """Whether the engine has sent all of its audio."""
        return self._policy.has_all_audio

    @property
    def awaits_aligners(self) -> bool:
        """Whether an aligner may still send times."""
        return self._policy.awaits_aligners

    @property
    def next_char(self) -> int | None:
        """Start of the next word in the text; None if none is expected."""
        return self._policy.next_char

    @property
    def counts(self) -> WordCounts:
        """Sources of the words' times."""
        return self._policy.counts

    def refined(self) -> tuple[WordTimestamp, ...] | None:
        """All published words with the best times known now; None where no time is better."""
        refined = self._policy.refined()
        return None if refined is None else tuple(map(self._place, refined))

    def _append(self, pcm: bytes) -> AudioChunk | None:
        start, self.end_sample = self.end_sample, self.end_sample + len(pcm) // BYTES_PER_SAMPLE
        return AudioChunk(start, pcm) if pcm else None

    def _place(self, timestamp: WordTimestamp) -> WordTimestamp:
        if self._stretch is None:
            return timestamp
        end = timestamp.end_sample
        return WordTimestamp(
            timestamp.word,
            round(timestamp.start_sample / self._speed),
            None if end is None else round(end / self._speed),
            timestamp.is_exact,
        )
