"""Times of words by guess: a usual speaking rate, by a clock that stands still in pauses.

The last resort, always there: wrong by as much as the voice is faster or slower than usual, and
better once a few words of the context are known. Knows no language and no phonemes.
"""

from array import array
from bisect import bisect_left

import numpy as np

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, ms_to_samples

_CHARS_PER_S = 17.0
"""Of speech without its pauses; with them it is 15, the usual figure of agents without times."""
_WIDE_CHARS_PER_S = 5.0  # syllables of Chinese, Japanese, Korean
_FIRST_WIDE = "\u1100"  # Hangul, Kana and Han lie above, alphabets and most marks below
_BLOCK_SAMPLES = ms_to_samples(10)
_BLOCK_BYTES = _BLOCK_SAMPLES * BYTES_PER_SAMPLE
_SILENCE_BELOW_PEAK = 0.01  # 40 dB
_SILENT_LEVEL = 33
"""Mean magnitude (-60 dBFS) under which nothing is speech."""
_LONGEST_GAP_BLOCKS = 20
"""Of quiet inside speech, as where lips close; a longer gap is a pause, and does not count."""
_LEAST_SAMPLES = ms_to_samples(500)
"""Usual length of the words that a voice must have spoken before its own pace counts."""
_SLOWEST, _FASTEST = 2.0, 0.5


class Pace:
    """Where in one context's sound there is speech, and how fast its voice speaks."""

    def __init__(self) -> None:
        self.made_samples: int = 0
        """Length of the sound so far."""
        self.first_sound = 0
        """Where something can be heard first; the end of the sound so far, if nothing can."""
        self._voiced = array("L")  # blocks of speech, up to and with each block
        self._gap_blocks = _LONGEST_GAP_BLOCKS + 1  # since the last block with sound
        self._rest = b""  # what came after the last whole block
        self._peak = 0.0
        self._rate = 1.0

    def push(self, pcm: bytes) -> None:
        """The context's next audio: PCM16, 24 kHz."""
        if self.first_sound == self.made_samples:
            self.first_sound += leading_silence_samples(pcm)
        self.made_samples += len(pcm) // BYTES_PER_SAMPLE
        pcm = self._rest + pcm
        whole = len(pcm) - len(pcm) % _BLOCK_BYTES
        self._rest = pcm[whole:]
        if not whole:
            return
        samples = np.frombuffer(pcm[:whole], "<i2").astype(np.float32)
        loudness = np.abs(samples).reshape(-1, _BLOCK_SAMPLES)  # [blocks, samples]
        peaks = np.maximum(np.maximum.accumulate(loudness.max(axis=1)), self._peak)  # so far
        self._peak = float(peaks[-1])
        floor = np.maximum(peaks * _SILENCE_BELOW_PEAK, _SILENT_LEVEL)
        for has_sound in (loudness.mean(axis=1) > floor).tolist():
            self._count(has_sound)

    def after(self, sample: int, usual_samples: float) -> int:
        """Where a voice gets to that says, from `sample` on, what usually takes so long."""
        target = self._voiced_at(sample) + usual_samples * self._rate
        voiced_samples = self._voiced_at(self.made_samples)
        if target > voiced_samples:
            return round(max(sample, self.made_samples) + target - voiced_samples)
        block = bisect_left(self._voiced, target / _BLOCK_SAMPLES)
        return max(sample, round(block * _BLOCK_SAMPLES))

    def learn(self, sample: int, usual_samples: float) -> None:
        """What usually takes so long has in truth been said from the first sound to `sample`."""
        if usual_samples >= _LEAST_SAMPLES:
            spoken = self._voiced_at(sample) - self._voiced_at(self.first_sound)
            rate = spoken / usual_samples
            self._rate = min(max(rate, _FASTEST), _SLOWEST)

    def _count(self, has_sound: bool) -> None:
        """One more block. A gap counts until it turns out to be a pause."""
        total = self._voiced[-1] if self._voiced else 0
        self._gap_blocks = 0 if has_sound else self._gap_blocks + 1
        if self._gap_blocks == _LONGEST_GAP_BLOCKS + 1:
            total -= _LONGEST_GAP_BLOCKS
            self._voiced[-_LONGEST_GAP_BLOCKS:] = array("L", [total]) * _LONGEST_GAP_BLOCKS
        self._voiced.append(total + (self._gap_blocks <= _LONGEST_GAP_BLOCKS))

    def _voiced_at(self, sample: int) -> int:
        """Samples of speech before `sample`, as far as sound has been made."""
        block = min(sample // _BLOCK_SAMPLES, len(self._voiced))
        return self._voiced[block - 1] * _BLOCK_SAMPLES if block else 0


def usual_samples(word: Word) -> float:
    """How long the word, and the white space behind it, usually takes to say."""
    wide = sum(character >= _FIRST_WIDE for character in word.text)
    narrow = len(word.text) - wide
    seconds = wide / _WIDE_CHARS_PER_S + (narrow + (not wide)) / _CHARS_PER_S
    return seconds * SAMPLE_RATE_HZ
