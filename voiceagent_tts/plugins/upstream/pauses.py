"""The pause after a text that an upstream has spoken.

An upstream takes each text for all that is said, and most end it without the pause that a listener
expects before the next one. What is missing of that pause is added.
"""

import numpy as np

from voiceagent_tts.core import ms_to_samples
from voiceagent_tts.text.punctuation import SENTENCE_ENDS, ends_clause, last_mark

_SENTENCE_SAMPLES = ms_to_samples(400)
"""Pause after a sentence. hibari makes 0.40 to 0.47 s, espeak-ng 0.29 to 0.35 s."""
_CLAUSE_SAMPLES = ms_to_samples(200)
"""Pause after a clause. hibari makes 0.17 to 0.41 s, espeak-ng 0.14 to 0.23 s."""
_QUIET_BELOW_PEAK = 0.01  # 40 dB


def usual_pause_samples(text: str) -> int:
    """The pause that a speaker makes after `text`, if more follows."""
    if not ends_clause(text):
        return 0
    return _SENTENCE_SAMPLES if last_mark(text.rstrip()) in SENTENCE_ENDS else _CLAUSE_SAMPLES


class QuietEnd:
    """Measures how long audio that comes in parts has been quiet at its end.

    Attributes:
        samples: samples after the last one that is at most 40 dB quieter than the loudest.
    """

    def __init__(self) -> None:
        self.samples = 0
        self._peak = 0

    def push(self, pcm: bytes) -> None:
        """Append PCM16."""
        levels = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32))
        self._peak = max(self._peak, int(levels.max(initial=0)))
        loud = np.flatnonzero(levels > self._peak * _QUIET_BELOW_PEAK)
        self.samples = len(levels) - 1 - int(loud[-1]) if len(loud) else self.samples + len(levels)
