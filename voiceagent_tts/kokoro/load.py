"""Loads Kokoro: its weights, its voices, and how many rows this CPU can speak."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.kokoro.espeak_reader import EspeakPronouncer
from voiceagent_tts.kokoro.network import Graph, Network
from voiceagent_tts.kokoro.published import SPOKEN, Files, find
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.english import EnglishPronouncer
from voiceagent_tts.phonemes.pace import measure_rows
from voiceagent_tts.phonemes.reading import Pronouncer
from voiceagent_tts.phonemes.voice import LoadedVoice
from voiceagent_tts.seam.engine import Inbox, Outbox

_MEASUREMENTS = 2
_MEASURED_TEXT = "This tells how fast this machine speaks."


@dataclass(frozen=True, slots=True)
class KokoroOptions:
    """Settings of an engine.

    Attributes:
        model: folder with the files. Default: the published ones, which are downloaded if missing.
        rows: maximum number of contexts at a time. Default: as many as this CPU speaks in real
            time, measured at start.
        threads: rows that are computed at the same time. Default: one for each core.
    """

    model: str | None = None
    rows: int | None = None
    threads: int | None = None


def load_kokoro(options: KokoroOptions, inbox: Inbox, outbox: Outbox) -> PhonemeEngine:
    """Load the weights and all voices, and measure the CPU unless the number of rows is given.

    Raises:
        CheckpointError: a package is missing, or the files are not here and cannot be downloaded,
            or are not those of Kokoro.
    """
    files = find(options.model)
    voices = load_voices(files)
    threads = options.threads or os.cpu_count() or 1
    first = next(iter(voices.values()))
    return PhonemeEngine(
        inbox,
        outbox,
        voices,
        name="kokoro",
        model=f"Kokoro-82M v1.0, {files.model.name}",
        max_rows=options.rows
        or measure_rows(first, _MEASURED_TEXT, threads=threads, measurements=_MEASUREMENTS),
        threads=threads,
    )


def load_voices(files: Files) -> dict[str, LoadedVoice]:
    """Load the voices that the folder has, in their published order."""
    weights = Graph(files.model)
    pronouncers: dict[str, Pronouncer] = {}
    voices: dict[str, LoadedVoice] = {}
    for details in SPOKEN:
        styles = files.voices / f"{details.name}.bin"
        if not styles.is_file():
            continue
        network = Network(weights, styles)
        language = details.language or ""
        if language not in pronouncers:
            pronouncers[language] = _pronouncer(language, network.knows)
        voices[details.name] = LoadedVoice(details, network, pronouncers[language])
    if not voices:
        raise CheckpointError(
            f"{files.voices}: expected a voice whose language is read here, such as "
            f"{SPOKEN[0].name}.bin, got none"
        )
    return voices


def _pronouncer(language: str, knows: Callable[[str], bool]) -> Pronouncer:
    if language.startswith("en"):
        return EnglishPronouncer(knows, is_british=language == "en-gb")
    return EspeakPronouncer(language, knows)
