"""A path through the reference to the times of words.

This module knows no costs, no features and no text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.aligner.online.espeak_reference import ReferenceWord
from voiceagent_tts.aligner.online.features import Integers
from voiceagent_tts.core import WordTimestamp, ms_to_samples

PAUSE_SAMPLES = ms_to_samples(70)
"""Between the centres of two frames with sound: longer than a plosive closes the mouth."""
_ONSET_FRAMES = 3
"""A word of which no more than this comes before a pause begins behind it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a sound was in the reference, at each of its frames with sound.

    Attributes:
        path: [N], frames of the reference, ascending.
        centres: [N], samples of the sound.
    """

    path: Integers
    centres: Sequence[int]

    def has_begun(self, word: ReferenceWord) -> bool:
        """Whether the sound has come to the word."""
        return len(self.path) > 0 and word.first_frame <= self.path[-1]

    def frames_in(self, word: ReferenceWord) -> int:
        """Frames of the sound inside the word."""
        first, end = np.searchsorted(self.path, (word.first_frame, word.end_frame))
        return int(end - first)

    def time(self, word: ReferenceWord) -> WordTimestamp:
        """When a word sounds that has begun; its end is None where it is not reached."""
        borders = (word.first_frame, word.first_frame + _ONSET_FRAMES, word.end_frame)
        first, onset, end = (int(place) for place in np.searchsorted(self.path, borders))
        first = self._behind_pause(first, onset)
        start = max(self.centres[first] + word.first_offset, 0)
        if end == len(self.path):
            return WordTimestamp(word.word, start, None, word.is_exact)
        if end <= first:
            return WordTimestamp(word.word, start, start, is_exact=False)
        end_sample = max(self.centres[end - 1] + word.end_offset, start)
        return WordTimestamp(word.word, start, end_sample, word.is_exact)

    def _behind_pause(self, first: int, end: int) -> int:
        """The first frame behind the pause between `first` and `end`; `first` if there is none.

        What is left of the sound before, an echo or a breath, resembles the next word's beginning
        as well as anything.
        """
        for index in range(first + 1, min(end, len(self.path))):
            if self.centres[index] - self.centres[index - 1] > PAUSE_SAMPLES:
                return index
        return first
