"""From an engine's clock to its listener's: stretched audio, breaks, and words ahead of them.

A context's audio goes in as the engine generated it and comes out as it is played; words come out
on the same clock, when the policy publishes them. Computes the deadline of the next word. Knows no
processes, no timers, no pacing and no sockets.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from voiceagent_tts.audio.stretch import HELD_SAMPLES, TimeStretch
from voiceagent_tts.core import (
    BYTES_PER_SAMPLE,
    SAMPLE_RATE_HZ,
    AudioChunk,
    PlayoutClock,
    Reading,
    Word,
    WordTimestamp,
)
from voiceagent_tts.synthesizer.word_policy import Source, WordPolicy
from voiceagent_tts.text.readings import said_word
from voiceagent_tts.text.words import GrowingWords

_DELIVERY_S = 0.02
"""Longest delay of a timer and a socket together."""
AHEAD_S = 0.15 + _DELIVERY_S
"""Time from publishing a word to the moment when playback can reach it. The protocol promises
150 ms."""
_TIMER_S = 0.001
"""Added to a deadline so that rounding to samples cannot leave the word not yet due."""


@dataclass(frozen=True, slots=True)
class _Break:
    """Silence that the listener gets between two segments of the engine's audio.

    Attributes:
        char_end: offset of the first character after its tag.
        engine_sample: its place in the engine's audio.
        start_sample: its first sample on the listener's clock.
        end_sample: the first sample after it on the listener's clock.
    """

    char_end: int
    engine_sample: int
    start_sample: int
    end_sample: int


class Timeline:
    """Maps one context's engine audio and word times onto the listener's clock.

    Args:
        speed: how much faster than the engine's audio the listener's is; 1.0 where the engine
            itself speaks at the requested speed.
        sources: sources that may send word times.
        voice_level: as for `SpeechClock`.

    Attributes:
        policy: chooses the times of the words, on the engine's clock.
        end_sample: end of the audio so far, on the listener's clock.
    """

    def __init__(self, speed: float, sources: Iterable[Source], voice_level: float = 0.0) -> None:
        sources = frozenset(sources)
        self.end_sample = 0
        self._speed = speed
        self._stretch = None if speed == 1.0 else TimeStretch(speed)
        self.policy = WordPolicy(sources, voice_level)
        self._growing_words = None if Source.NATIVE in sources else GrowingWords()
        self._readings: deque[Reading] = deque()
        """Readings whose words are not complete."""
        self._engine_end_sample = 0
        self._breaks: list[_Break] = []
        self._expected_breaks: deque[int] = deque()
        """`char_end` of the breaks whose place in the audio is not known."""
        self._silence_samples = 0
        self._is_broken_off = False

    # The engine's clock.

    def expect_text(
        self, text: str, *, is_whole: bool, readings: Iterable[Reading] = ()
    ) -> list[Word]:
        """Add text whose words will be spoken.

        Args:
            text: the part that follows all parts before.
            is_whole: whether its last word is complete.
            readings: how spans of `text` are said, in order.

        Returns:
            The words that it completes, as they are said; none where the engine itself sends its
            words.
        """
        if self._growing_words is None:
            return []
        self._readings += readings
        words = self._growing_words.push(text)
        if is_whole:
            words += self._growing_words.finish()
        if self._readings:
            words = [self._said(word) for word in words]
        self.policy.expect(words)
        return words

    def _said(self, word: Word) -> Word:
        readings: list[Reading] = []
        while self._readings and self._readings[0].char_start < word.char_end:
            readings.append(self._readings.popleft())
        if not readings:
            return word
        return Word(said_word(word.text, word.char_start, readings), word.char_start, word.char_end)

    def add_times(self, source: Source, timestamps: tuple[WordTimestamp, ...]) -> None:
        """Add final times from `source`."""
        if source is Source.NATIVE:
            self.policy.expect(timestamp.word for timestamp in timestamps)
        self.policy.add_times(source, timestamps)

    def add_stored(self, timestamps: tuple[WordTimestamp, ...]) -> None:
        """Add the final times of a cached phrase's words."""
        if self._growing_words is None:
            self.policy.expect(timestamp.word for timestamp in timestamps)
        self.policy.add_times(Source.CACHE, timestamps)

    def push_audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """Return the engine's next audio at the listener's speed, as far as it is stretched."""
        if self._growing_words is not None:
            self.policy.push_audio(chunk.pcm)
        self._engine_end_sample = chunk.end_sample
        if self._stretch is None and not self._breaks:
            self.end_sample = chunk.end_sample
            return chunk
        pcm = chunk.pcm if self._stretch is None else self._stretch.push(chunk.pcm)
        return self._append(pcm)

    def expect_break(self, char_end: int) -> None:
        """Keep back the words behind a break until `push_break` tells where it ends."""
        self._expected_breaks.append(char_end)

    def push_break(self, char_end: int, samples: int) -> list[AudioChunk]:
        """Insert exact silence after the engine's audio so far: the next expected break.

        Args:
            char_end: offset of the first character after the break; the audio so far is that of the
                text before it.
            samples: length of the silence on the listener's clock.

        Returns:
            The rest of the stretched audio, if any, and the silence.
        """
        rest = None
        if self._stretch is not None:
            rest = self._append(self._stretch.finish())
            self._stretch = TimeStretch(self._speed)
        silence = self._append(bytes(samples * BYTES_PER_SAMPLE))
        self._breaks.append(
            _Break(char_end, self._engine_end_sample, self.end_sample - samples, self.end_sample)
        )
        self._silence_samples += samples
        self._expected_breaks.popleft()
        return [chunk for chunk in (rest, silence) if chunk is not None]

    def end_audio(self) -> AudioChunk | None:
        """Return the rest of the audio; the engine has sent all of it."""
        self.policy.end_audio()
        return None if self._stretch is None else self._append(self._stretch.finish())

    def break_off(self) -> None:
        """Record that the engine sends no more audio, though it has not spoken all of the text."""
        self._is_broken_off = True

    def to_engine_samples(self, samples: int) -> int:
        """Return the samples that the engine must generate so that `samples` can be played."""
        samples = max(0, samples - self._silence_samples)
        return samples if self._stretch is None else round(samples * self._speed) + HELD_SAMPLES

    # The listener's clock.

    def pop_due(self, clock: PlayoutClock, now: float) -> tuple[WordTimestamp, ...]:
        """Return the words to publish at `now` (`time.monotonic()`)."""
        ahead_s = AHEAD_S - clock.lead_s(now)
        reach = clock.sent_samples + ahead_s * SAMPLE_RATE_HZ
        if self._is_broken_off:  # no word can be sent once the audio so far has left
            reach = max(reach, self.end_sample - 1)
        on_arrival = clock.played_samples(now) + _DELIVERY_S * SAMPLE_RATE_HZ
        played = min(on_arrival, clock.sent_samples)
        reached = bisect_right(self._breaks, reach, key=_start_sample)
        due = self.policy.pop_due(
            self._on_engine_clock(reach, in_break=-1),
            self._on_engine_clock(played, in_break=0),
            reach_char=self._breaks[reached - 1].char_end if reached else 0,
            char_limit=self._char_limit,
        )
        return tuple(map(self._place, due))

    def next_due_at(self, clock: PlayoutClock) -> float | None:
        """Return when the next word is due without further events; None if an event decides."""
        if not clock.sent_samples:
            return None
        start, char_start = self.policy.next_start, self.policy.next_char
        if start is None or char_start is None:
            return None
        if self._char_limit is not None and char_start >= self._char_limit:
            return None
        place = self._on_listener_clock(start, char_start)
        unsent_s = (place - clock.sent_samples) / SAMPLE_RATE_HZ
        if unsent_s > AHEAD_S:
            return None
        return clock.playout_end + unsent_s - AHEAD_S + _TIMER_S

    def refined(self) -> tuple[WordTimestamp, ...] | None:
        """All published words with the best times known now; None where no time is better."""
        refined = self.policy.refined()
        return None if refined is None else tuple(map(self._place, refined))

    @property
    def _char_limit(self) -> int | None:
        return self._expected_breaks[0] if self._expected_breaks else None

    def _append(self, pcm: bytes) -> AudioChunk | None:
        start, self.end_sample = self.end_sample, self.end_sample + len(pcm) // BYTES_PER_SAMPLE
        return AudioChunk(start, pcm) if pcm else None

    def _place(self, timestamp: WordTimestamp) -> WordTimestamp:
        if self._stretch is None and not self._breaks:
            return timestamp
        char_start, end = timestamp.word.char_start, timestamp.end_sample
        return WordTimestamp(
            timestamp.word,
            round(self._on_listener_clock(timestamp.start_sample, char_start)),
            None if end is None else round(self._on_listener_clock(end, char_start)),
            timestamp.confidence,
        )

    def _on_listener_clock(self, engine_sample: int, char_start: int) -> float:
        """Where the listener hears a sample of the word at `char_start`.

        A word lies after the breaks before it in the text and before the next break, even where
        its estimated time says otherwise.
        """
        following = bisect_right(self._breaks, char_start, key=_char_end)
        if not following:
            sample = engine_sample / self._speed
        else:
            last = self._breaks[following - 1]
            after_samples = max(0, engine_sample - last.engine_sample)
            sample = last.end_sample + after_samples / self._speed
        if following < len(self._breaks):
            sample = min(sample, self._breaks[following].start_sample)
        return sample

    def _on_engine_clock(self, listener_sample: float, *, in_break: int) -> int:
        """The engine's sample that the listener hears at `listener_sample`, rounded up.

        Args:
            listener_sample: on the listener's clock.
            in_break: what is added to a break's place in the engine's audio for a sample in it.
        """
        following = bisect_right(self._breaks, listener_sample, key=_start_sample)
        if not following:
            return math.ceil(listener_sample * self._speed)
        last = self._breaks[following - 1]
        if listener_sample < last.end_sample:
            return last.engine_sample + in_break
        return last.engine_sample + math.ceil((listener_sample - last.end_sample) * self._speed)


def _char_end(each: _Break) -> int:
    return each.char_end


def _start_sample(each: _Break) -> int:
    return each.start_sample
