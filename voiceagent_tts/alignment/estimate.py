"""Times of words by guess: a usual speaking rate, which the clock follows while there is sound.

The last resort where an engine has no word times of its own: always there, never late, and wrong by
as much as the voice is faster or slower than usual. Knows no language and no phonemes.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from voiceagent_tts.core import SAMPLE_RATE_HZ, Word, WordTimestamp, ms_to_samples

_CHARS_PER_S = 15.0  # letters of running speech, the usual figure of agents without timestamps
_WIDE_CHARS_PER_S = 4.5  # syllables of Chinese, Japanese, Korean
_FIRST_WIDE = "\u1100"  # Hangul, Kana and Han lie above, alphabets and most marks below
_LOOKAHEAD_SAMPLES = ms_to_samples(250)
"""Words leave this far ahead of the sound that has been made, so that they are never late."""
_BLOCK_SAMPLES = ms_to_samples(10)
_SILENCE_BELOW_PEAK = 0.03  # 30 dB


class Estimator:
    """Guesses the words of one context; every word once, in order, never revised."""

    def __init__(self) -> None:
        self._waiting: deque[Word] = deque()
        self._made_samples = 0
        self._voiced_samples = 0.0
        """Of what was made, samples with sound."""
        self._due_samples = 0.0
        """Voiced samples after which the next word begins."""
        self._peak = 0.0
        self._last_start = 0

    def append(self, words: Iterable[Word]) -> None:
        """More words of the context, in order."""
        self._waiting.extend(words)

    def push(self, pcm: bytes) -> tuple[WordTimestamp, ...]:
        """The words to send ahead of `pcm`, the context's next audio (PCM16, 24 kHz)."""
        samples = np.abs(np.frombuffer(pcm, "<i2").astype(np.float32))
        self._peak = max(self._peak, float(samples.max(initial=0.0)))
        for start in range(0, len(samples), _BLOCK_SAMPLES):
            block = samples[start : start + _BLOCK_SAMPLES]
            if block.mean() > self._peak * _SILENCE_BELOW_PEAK:
                self._voiced_samples += len(block)
        self._made_samples += len(samples)
        return self._take(self._voiced_samples + _LOOKAHEAD_SAMPLES)

    def finish(self) -> tuple[WordTimestamp, ...]:
        """The words that are left when all audio has been made: over at its end."""
        return self._take(float("inf"))

    def _take(self, until_voiced: float) -> tuple[WordTimestamp, ...]:
        taken: list[WordTimestamp] = []
        while self._waiting and self._due_samples <= until_voiced:
            word = self._waiting.popleft()
            ahead = round(self._due_samples - self._voiced_samples)
            start = self._made_samples + ahead
            if until_voiced == float("inf"):
                start = min(start, self._made_samples)
            start = max(start, self._last_start)
            self._last_start = start
            self._due_samples += _usual_samples(word)
            taken.append(WordTimestamp(word, start, None, is_exact=False))
        return tuple(taken)


def _usual_samples(word: Word) -> float:
    """How long the word, and the white space behind it, usually takes to say."""
    wide = sum(character >= _FIRST_WIDE for character in word.text)
    narrow = len(word.text) - wide
    seconds = wide / _WIDE_CHARS_PER_S + (narrow + (not wide)) / _CHARS_PER_S
    return seconds * SAMPLE_RATE_HZ
