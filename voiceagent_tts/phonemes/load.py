"""Measures how many rows of a voice a machine speaks in real time."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Segment
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.phonemes.speech import Speech
from voiceagent_tts.text.pieces import split_pieces

_MAX_ROWS = 512
_MAX_LOAD = 0.8
"""Share of the machine's measured speed that rows may take: the server needs the rest."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A text that a voice speaks to measure its speed.

    Attributes:
        times: how often it is said; the median counts.
        clock: clock that measures it. Processor time is not changed by other programs; a GPU needs
            wall time.
    """

    text: str
    times: int
    clock: Callable[[], float] = time.process_time

    def rtf(self, voices: Mapping[str, LoadedVoice]) -> float:
        """Return the first voice's seconds per second of audio; also warms up its first text."""
        first = next(iter(voices.values()))
        return statistics.median(self._say(first) for _ in range(self.times))

    def rows(self, voices: Mapping[str, LoadedVoice], threads: int) -> int:
        """Return the number of rows that the first voice speaks in real time, `threads` at once."""
        return max(1, min(_MAX_ROWS, int(_MAX_LOAD * threads / self.rtf(voices))))

    def _say(self, voice: LoadedVoice) -> float:
        started = self.clock()
        noise = np.random.default_rng(0)
        samples = 0
        for piece in split_pieces(Segment(self.text, 0)):
            for phonemes, words in voice.read(piece):
                speech = Speech(
                    voice.network, phonemes, words, speed=1.0, noise=noise, trims_lead=True
                )
                while pcm := speech.next_part(has_pause=True):
                    samples += len(pcm) // BYTES_PER_SAMPLE
        return (self.clock() - started) * SAMPLE_RATE_HZ / samples
