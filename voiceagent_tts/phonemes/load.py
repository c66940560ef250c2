"""Makes an engine of loaded voices, with as many rows as this machine speaks."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Segment
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.phonemes.speech import Speech
from voiceagent_tts.seam.engine import Inbox, Outbox
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

    def rtf(self, voice: LoadedVoice) -> float:
        """Return the seconds per second of audio; also warms up what a first text needs."""
        return statistics.median(self._say(voice) for _ in range(self.times))

    def rows(self, voice: LoadedVoice, threads: int) -> int:
        """Return the number of rows that the voice speaks in real time, `threads` at a time."""
        return max(1, min(_MAX_ROWS, int(_MAX_LOAD * threads / self.rtf(voice))))

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


def make_engine(
    inbox: Inbox,
    outbox: Outbox,
    voices: Mapping[str, LoadedVoice],
    trial: Trial,
    *,
    name: str,
    model: str,
    rows: int | None,
    threads: int | None,
) -> PhonemeEngine:
    """Make an engine; by default with a thread for each core, and the rows that a trial finds."""
    threads = threads or os.cpu_count() or 1
    first = next(iter(voices.values()))
    return PhonemeEngine(
        inbox,
        outbox,
        voices,
        name=name,
        model=model,
        max_rows=rows or trial.rows(first, threads),
        threads=threads,
    )
