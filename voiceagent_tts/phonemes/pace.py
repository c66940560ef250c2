"""How many rows this CPU can speak with a voice."""

import statistics
import time

import numpy as np

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Segment
from voiceagent_tts.phonemes.speech import Speech
from voiceagent_tts.phonemes.voice import LoadedVoice
from voiceagent_tts.text.pieces import split_pieces

_MAX_ROWS = 512
_MAX_LOAD = 0.8
"""Share of the CPU's measured speed that rows may take: the server needs the rest."""


def measure_rows(voice: LoadedVoice, text: str, *, threads: int, measurements: int) -> int:
    """Number of rows that this CPU speaks in real time; also warms up what a first text needs.

    Args:
        voice: the voice.
        text: what it says for the measurement.
        threads: rows that are computed at the same time.
        measurements: how often it says that; the median counts.
    """
    rtf = statistics.median(_speak_once(voice, text) for _ in range(measurements))
    return max(1, min(_MAX_ROWS, int(_MAX_LOAD * threads / rtf)))


def _speak_once(voice: LoadedVoice, text: str) -> float:
    """Return the CPU seconds per second of audio.

    Unlike those of the clock, they are the same while other programs use the CPU.
    """
    started = time.process_time()
    noise = np.random.default_rng(0)
    samples = 0
    for piece in split_pieces(Segment(text, 0)):
        for phonemes, words in voice.read(piece):
            speech = Speech(voice.network, phonemes, words, speed=1.0, noise=noise, trims_lead=True)
            while pcm := speech.next_part(has_pause=True):
                samples += len(pcm) // BYTES_PER_SAMPLE
    return (time.process_time() - started) * SAMPLE_RATE_HZ / samples
