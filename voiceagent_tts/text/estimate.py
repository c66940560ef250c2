"""Estimated word times: a typical speaking rate, on a clock that stops in pauses.

The fallback that needs no aligner. It is wrong by as much as the voice is faster or slower than
typical, and improves once a few words of the context are known.
"""

from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from voiceagent_tts.audio.levels import leading_silence_samples
from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Word, ms_to_samples

_CHARS_PER_S = 17.0
"""Characters per second of speech without pauses; with pauses it is 15, the usual figure of agents
without word times."""
ESTIMATE_CONFIDENCE = 0.3
"""Share of estimated words that begin within 200 ms of their estimate. Measured on the development
speech of `benchmarks.alignment`: 0.40 of clean speech, 0.12 of voices that are 30 % slower."""
_WIDE_CHARS_PER_S = 5.0  # syllables of Chinese, Japanese, Korean
_FIRST_WIDE = "\u1100"  # Hangul, Kana and Han lie above, alphabets and most marks below
_BLOCK_SAMPLES = ms_to_samples(10)
_BLOCK_BYTES = _BLOCK_SAMPLES * BYTES_PER_SAMPLE
_SILENCE_BELOW_PEAK = 0.01  # 40 dB
_SILENT_LEVEL = 33
"""Mean magnitude (-60 dBFS) below which no block is speech."""
_QUIET_BELOW_LOUDEST = 0.05
"""Mean magnitude of a block, relative to the voice's loudest, below which no first word begins:
26 dB. Of a word with a softer first consonant, the vowel is found. On the development speech of
`benchmarks.alignment`, 28 dB takes more of the noise before a word for it (86.9 % exact cuts in
place of 91.9 where it lasts 1 s), and 23 dB holds the first word through a breath, after which more
wrong times are sent as exact (22 words in place of 2)."""
_LOUD_BELOW_LOUDEST = 0.1
"""The level, relative to the loudest, below which there is no vowel: 20 dB. Each word has one."""
_MAX_LEAD_SAMPLES = ms_to_samples(3_000)
"""Audio after which a voice that was not loud is quieter than it was before, as in a whisper."""
_MAX_GAP_BLOCKS = 20
"""Longest quiet part inside speech, such as the closure of a plosive; a longer one is a pause and
does not count as speech."""
_MIN_LEARNED_SAMPLES = ms_to_samples(500)
"""Typical length of the words that must be known before the voice's own rate is used."""
_MAX_DURATION_RATIO, _MIN_DURATION_RATIO = 2.0, 0.5


class SpeechClock:
    """Counts one context's speech without its pauses, and measures how fast the voice speaks.

    Args:
        voice_level: `level` of the voice's earlier contexts; 0.0 if unknown.

    Attributes:
        made_samples: length of the audio so far.
        first_sound: first audible sample; the length of the audio so far if all of it is silent.
        level: mean magnitude of the loudest 10 ms so far.
    """

    def __init__(self, voice_level: float = 0.0) -> None:
        self.made_samples: int = 0
        self.first_sound = 0
        self.level = 0.0
        self._voice_level = voice_level
        self._quiet_blocks = 0  # blocks before the first that is as loud as speech
        self._loud_end = 0  # end of the last block that is as loud as a vowel
        self._voiced = array("L")  # number of speech blocks up to and including each block
        self._gap_blocks = _MAX_GAP_BLOCKS + 1  # blocks since the last one with sound
        self._rest = b""  # samples after the last whole block
        self._peak = 0.0
        self._duration_ratio = 1.0

    def push(self, pcm: bytes) -> None:
        """Append the context's next audio: PCM16, 24 kHz."""
        if self.first_sound == self.made_samples:
            self.first_sound += leading_silence_samples(pcm)
        self.made_samples += len(pcm) // BYTES_PER_SAMPLE
        pcm = self._rest + pcm
        whole = len(pcm) - len(pcm) % _BLOCK_BYTES
        self._rest = pcm[whole:]
        if whole:
            self._count_blocks(pcm[:whole])

    def _count_blocks(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2").astype(np.float32)
        loudness = np.abs(samples).reshape(-1, _BLOCK_SAMPLES)  # [blocks, samples]
        levels = loudness.mean(axis=1)
        self._follow_level(levels)
        peaks = np.maximum(np.maximum.accumulate(loudness.max(axis=1)), self._peak)  # so far
        self._peak = float(peaks[-1])
        floor = np.maximum(peaks * _SILENCE_BELOW_PEAK, _SILENT_LEVEL)
        for has_sound in (levels > floor).tolist():
            self._count(has_sound)

    def _follow_level(self, levels: npt.NDArray[np.float32]) -> None:
        """Find the first block as loud as speech, and the last as loud as a vowel."""
        first = len(self._voiced)
        if self._quiet_blocks == first:
            is_speech = np.append(levels >= self._voice_level * _QUIET_BELOW_LOUDEST, True)
            self._quiet_blocks += int(is_speech.argmax())
        self.level = max(self.level, float(levels.max()))
        loud = np.flatnonzero(levels >= max(self.level, self._voice_level) * _LOUD_BELOW_LOUDEST)
        if len(loud):
            self._loud_end = (first + int(loud[-1]) + 1) * _BLOCK_SAMPLES
        elif not self._loud_end and self.made_samples > _MAX_LEAD_SAMPLES:
            self._voice_level = 0.0

    @property
    def first_speech(self) -> int:
        """First sample as loud as the voice's speech; the length of the audio if there is none.

        The first audible sample where the voice's level is unknown, and after three seconds in
        which the voice was not loud.
        """
        if not self._voice_level:
            return self.first_sound
        is_quiet = self._quiet_blocks == len(self._voiced)
        quiet = self.made_samples if is_quiet else self._quiet_blocks * _BLOCK_SAMPLES
        return max(self.first_sound, quiet)

    def was_loud_since(self, sample: int) -> bool:
        """Whether there was a vowel after `sample`, as far as loudness shows it."""
        return self._loud_end > sample

    def sample_after(self, sample: int, typical_samples: float) -> int:
        """Estimate the end of speech that begins at `sample` and lasts `typical_samples`."""
        target = self._voiced_at(sample) + typical_samples * self._duration_ratio
        voiced_samples = self._voiced_at(self.made_samples)
        if target > voiced_samples:
            return round(max(sample, self.made_samples) + target - voiced_samples)
        block = bisect_left(self._voiced, target / _BLOCK_SAMPLES)
        return max(sample, round(block * _BLOCK_SAMPLES))

    def calibrate(self, sample: int, typical_samples: float) -> None:
        """Measure the voice's rate: the speech up to `sample` typically takes `typical_samples`."""
        if typical_samples >= _MIN_LEARNED_SAMPLES:
            spoken = self._voiced_at(sample) - self._voiced_at(self.first_sound)
            ratio = spoken / typical_samples
            self._duration_ratio = min(max(ratio, _MIN_DURATION_RATIO), _MAX_DURATION_RATIO)

    def _count(self, has_sound: bool) -> None:
        """Count one more block; a gap counts as speech until it turns out to be a pause."""
        total = self._voiced[-1] if self._voiced else 0
        self._gap_blocks = 0 if has_sound else self._gap_blocks + 1
        if self._gap_blocks == _MAX_GAP_BLOCKS + 1:
            total -= _MAX_GAP_BLOCKS
            self._voiced[-_MAX_GAP_BLOCKS:] = array("L", [total]) * _MAX_GAP_BLOCKS
        self._voiced.append(total + (self._gap_blocks <= _MAX_GAP_BLOCKS))

    def _voiced_at(self, sample: int) -> int:
        block = min(sample // _BLOCK_SAMPLES, len(self._voiced))
        return self._voiced[block - 1] * _BLOCK_SAMPLES if block else 0


def typical_samples(word: Word) -> float:
    """Typical duration of a word and the white space after it, in samples."""
    wide = sum(character >= _FIRST_WIDE for character in word.text)
    narrow = len(word.text) - wide
    seconds = wide / _WIDE_CHARS_PER_S + (narrow + (not wide)) / _CHARS_PER_S
    return seconds * SAMPLE_RATE_HZ
