"""Loads hibari: its voices, and how many rows this CPU can speak."""

import os
import statistics
import time
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np

from voiceagent_tts.core import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ, Segment
from voiceagent_tts.hibari.engine import HibariEngine
from voiceagent_tts.hibari.network import Network
from voiceagent_tts.hibari.pieces import split_pieces
from voiceagent_tts.hibari.pronunciation import Pronouncer
from voiceagent_tts.hibari.published import (
    PublishedVoice,
    assets,
    fetch,
    published_voices,
    stored_voices,
)
from voiceagent_tts.hibari.speech import Speech
from voiceagent_tts.hibari.voice import LoadedVoice
from voiceagent_tts.seam.engine import Inbox, Outbox

_MAX_ROWS = 512
_MAX_LOAD = 0.8
"""Share of the CPU's measured speed that rows may take: the server needs the rest."""
_MEASUREMENTS = 5
_MEASURED_TEXT = "This sentence tells how fast this machine can speak, before anyone listens."


@dataclass(frozen=True, slots=True)
class HibariOptions:
    """Settings of an engine.

    Attributes:
        models: names of voices, the default first. Default: all that are on this machine.
        rows: maximum number of contexts at a time. Default: as many as this CPU speaks in real
            time, measured at start, at most 512.
        threads: rows that are computed at the same time. Default: one for each core.
    """

    models: tuple[str, ...] = ()
    rows: int | None = None
    threads: int | None = None


def load_hibari(options: HibariOptions, inbox: Inbox, outbox: Outbox) -> HibariEngine:
    """Load the voices, and measure the CPU unless the number of rows is given.

    Raises:
        CheckpointError: the package is missing, a voice is unknown, or its file is neither here nor
            can be downloaded.
    """
    voices = load_voices(tuple(options.models))
    threads = options.threads or os.cpu_count() or 1
    return HibariEngine(
        inbox,
        outbox,
        voices,
        max_rows=options.rows or _measure_rows(next(iter(voices.values())), threads),
        threads=threads,
        version=version("hibari-tts"),
    )


def load_voices(names: tuple[str, ...]) -> dict[str, LoadedVoice]:
    """Load voices by name, or all that are on this machine."""
    pronouncers: dict[bool, Pronouncer] = {}
    return {voice.name: _load(voice, pronouncers) for voice in _chosen(names)}


def _chosen(names: tuple[str, ...]) -> list[PublishedVoice]:
    for name in names:
        fetch(name)
    return [published_voices()[name] for name in names] or stored_voices()


def _load(published: PublishedVoice, pronouncers: dict[bool, Pronouncer]) -> LoadedVoice:
    network = Network(published.file, assets() / "vocab.json")
    is_british = published.is_british
    if is_british not in pronouncers:
        pronouncers[is_british] = Pronouncer(network, is_british=is_british)
    return LoadedVoice(published, network, pronouncers[is_british])


def _measure_rows(voice: LoadedVoice, threads: int) -> int:
    """Number of rows that this CPU speaks in real time; also warms up what a first text needs."""
    rtf = statistics.median(_speak_once(voice) for _ in range(_MEASUREMENTS))
    return max(1, min(_MAX_ROWS, int(_MAX_LOAD * threads / rtf)))


def _speak_once(voice: LoadedVoice) -> float:
    """Return the CPU seconds per second of audio of one sentence.

    Unlike those of the clock, they are the same while other programs use the CPU.
    """
    started = time.process_time()
    noise = np.random.default_rng(0)
    samples = 0
    for piece in split_pieces(Segment(_MEASURED_TEXT, 0)):
        for phonemes, words in voice.read(piece):
            speech = Speech(voice.network, phonemes, words, speed=1.0, noise=noise, trims_lead=True)
            while pcm := speech.next_part(has_pause=True):
                samples += len(pcm) // BYTES_PER_SAMPLE
    return (time.process_time() - started) * SAMPLE_RATE_HZ / samples
