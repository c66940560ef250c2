"""From an engine's clock to its listener's: stretched time, and words before they are heard.

Audio of one context goes in as the engine made it and comes out as it is heard; words come out when
the policy lets them go, on the same clock. Knows no processes, no pacing and no sockets.
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
from voiceagent_tts.synthesizer.word_policy import Source, WordFigures, WordPolicy
from voiceagent_tts.text.words import GrowingWords

_ON_ITS_WAY_S = 0.02
"""How late a timer and a socket may be."""
AHEAD_S = 0.15 + _ON_ITS_WAY_S
"""A word leaves so long before playback can reach it: 150 ms before, as the protocol says."""
_TIMER_S = 0.001
"""So much later the word is due also by whole samples."""


class Timeline:
    """One context's.

    Args:
        speed: how much faster than the engine the listener hears it; 1.0 where the engine itself
            speaks at the speed that was asked for.
        sources: who may tell when words sound.
    """

    def __init__(self, speed: float, sources: Iterable[Source]) -> None:
        sources = frozenset(sources)
        self._speed = speed
        self._stretch = None if speed == 1.0 else TimeStretch(speed)
        self._policy = WordPolicy(sources)
        self._growing_words = None if Source.NATIVE in sources else GrowingWords()
        self._end_sample = 0

    # The engine's clock.

    def expect(self, text: str, *, is_whole: bool) -> list[Word]:
        """More of the context's text, whose words will sound some time.

        Args:
            text: the part that follows all parts before.
            is_whole: whether its last word is complete.

        Returns:
            The words that it completes; none where the engine itself tells of its words.
        """
        if self._growing_words is None:
            return []
        words = self._growing_words.push(text)
        if is_whole:
            words += self._growing_words.finish()
        self._policy.expect(words)
        return words

    def tell(self, source: Source, timestamps: tuple[WordTimestamp, ...]) -> None:
        """Final times from `source`."""
        if source is Source.NATIVE:
            self._policy.expect(timestamp.word for timestamp in timestamps)
        self._policy.tell(source, timestamps)

    def expect_at(self, timestamps: tuple[WordTimestamp, ...]) -> None:
        """The online aligner's outlook, in place of the one before."""
        self._policy.expect_at(timestamps)

    def lose(self, source: Source) -> None:
        """Nothing more will come of `source`."""
        self._policy.lose(source)

    def audio(self, chunk: AudioChunk) -> AudioChunk | None:
        """The engine's next audio as it is heard, as far as that is known by now."""
        if self._growing_words is not None:
            self._policy.listen(chunk.pcm)
        return chunk if self._stretch is None else self._heard(self._stretch.push(chunk.pcm))

    def end_segment(self, char_end: int, end_sample: int) -> None:
        """The text up to `char_end` has been spoken in the engine's audio up to `end_sample`."""
        self._policy.end_segment(char_end, end_sample)

    def finish(self) -> AudioChunk | None:
        """The rest of the audio: the engine has made it all."""
        self._policy.end_audio()
        return None if self._stretch is None else self._heard(self._stretch.finish())

    def to_engine(self, samples: int) -> int:
        """How much the engine must make so that `samples` can be heard."""
        return samples if self._stretch is None else round(samples * self._speed) + HELD_SAMPLES

    # The listener's clock.

    def take(self, clock: PlayoutClock, now: float) -> tuple[WordTimestamp, ...]:
        """The words that leave at `now` (`time.monotonic()`)."""
        ahead_s = AHEAD_S - clock.lead_s(now)
        reach = (clock.sent_samples + ahead_s * SAMPLE_RATE_HZ) * self._speed
        on_arrival = clock.played_samples(now) + _ON_ITS_WAY_S * SAMPLE_RATE_HZ
        played = min(on_arrival, clock.sent_samples) * self._speed
        taken = self._policy.take(math.ceil(reach), math.ceil(played))
        return tuple(map(self._place, taken))

    def next_take_at(self, clock: PlayoutClock) -> float | None:
        """When the next word must leave if nothing happens; None where only an event can tell."""
        start = self._policy.next_start
        if start is None or not clock.sent_samples:
            return None
        unsent_s = (start / self._speed - clock.sent_samples) / SAMPLE_RATE_HZ
        if unsent_s > AHEAD_S:
            return None
        return clock.playout_end + unsent_s - AHEAD_S + _TIMER_S

    @property
    def awaits_answers(self) -> bool:
        """Whether an aligner may still say something."""
        return self._policy.awaits_answers

    @property
    def next_char(self) -> int | None:
        """Where in the text the next word begins; None where none is expected."""
        return self._policy.next_char

    @property
    def figures(self) -> WordFigures:
        """How the words got their times."""
        return self._policy.figures

    def refined(self) -> tuple[WordTimestamp, ...] | None:
        """All words that have left, with the best times known now; None where nothing is better."""
        refined = self._policy.refined()
        return None if refined is None else tuple(map(self._place, refined))

    def _heard(self, pcm: bytes) -> AudioChunk | None:
        start, self._end_sample = self._end_sample, self._end_sample + len(pcm) // BYTES_PER_SAMPLE
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
