"""From an engine's clock to its listener's: stretched time, and words where the engine has none.

Audio and words of one context go in as the engine made them and come out as they are heard, words
ahead of the audio that they describe. Knows no processes, no pacing and no sockets.
"""

from dataclasses import dataclass

from voiceagent_tts.alignment.estimate import Estimator
from voiceagent_tts.audio.stretch import HELD_SAMPLES, TimeStretch
from voiceagent_tts.core import BYTES_PER_SAMPLE, AudioChunk, WordTimestamp
from voiceagent_tts.text.words import GrowingWords


@dataclass(frozen=True, slots=True)
class Heard:
    """What the listener gets next: words, then audio, either possibly empty."""

    words: tuple[WordTimestamp, ...]
    audio: AudioChunk | None


class Timeline:
    """One context's.

    Args:
        speed: how much faster than the engine the listener hears it; 1.0 where the engine itself
            speaks at the speed that was asked for.
        has_native_words: whether the engine tells when its words sound.
    """

    def __init__(self, speed: float, *, has_native_words: bool) -> None:
        self._speed = speed
        self._stretch = None if speed == 1.0 else TimeStretch(speed)
        self._estimator = None if has_native_words else Estimator()
        self._growing_words = GrowingWords()
        self._end_sample = 0

    def expect(self, delta: str, *, is_last: bool = False) -> None:
        """More text of the context, whose words will sound some time."""
        if self._estimator is not None:
            self._estimator.append(self._growing_words.push(delta))
            if is_last:
                self._estimator.append(self._growing_words.finish())

    def words(self, words: tuple[WordTimestamp, ...]) -> tuple[WordTimestamp, ...]:
        """The engine's own word times on the listener's clock."""
        if self._estimator is not None:
            return ()
        return words if self._stretch is None else tuple(map(self._place, words))

    def audio(self, chunk: AudioChunk) -> Heard:
        """The engine's next audio."""
        if self._stretch is None and self._estimator is None:
            return Heard((), chunk)
        pcm = chunk.pcm if self._stretch is None else self._stretch.push(chunk.pcm)
        return self._heard(pcm)

    def finish(self) -> Heard:
        """What is left when the engine has spoken all."""
        heard = self._heard(b"" if self._stretch is None else self._stretch.finish())
        if self._estimator is None:
            return heard
        return Heard(heard.words + self._estimator.finish(), heard.audio)

    def to_engine(self, samples: int) -> int:
        """How much the engine must make so that `samples` can be heard."""
        return samples if self._stretch is None else round(samples * self._speed) + HELD_SAMPLES

    def _heard(self, pcm: bytes) -> Heard:
        words = () if self._estimator is None else self._estimator.push(pcm)
        start, self._end_sample = self._end_sample, self._end_sample + len(pcm) // BYTES_PER_SAMPLE
        return Heard(words, AudioChunk(start, pcm) if pcm else None)

    def _place(self, timestamp: WordTimestamp) -> WordTimestamp:
        end = timestamp.end_sample
        return WordTimestamp(
            timestamp.word,
            round(timestamp.start_sample / self._speed),
            None if end is None else round(end / self._speed),
            timestamp.is_exact,
        )
