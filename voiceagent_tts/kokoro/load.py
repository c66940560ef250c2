"""Loads Kokoro: its weights, its voices, and how many rows this CPU can speak."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.kokoro.espeak_reader import EspeakPronouncer
from voiceagent_tts.kokoro.network import Graph, Network
from voiceagent_tts.kokoro.published import SPOKEN, Files, find
from voiceagent_tts.phonemes.engine import PhonemeEngine
from voiceagent_tts.phonemes.english import EnglishPronouncer
from voiceagent_tts.phonemes.graph import CPU, Provider, providers
from voiceagent_tts.phonemes.load import Trial
from voiceagent_tts.phonemes.reading import LoadedVoice, Pronouncer
from voiceagent_tts.seam.engine import Inbox, Outbox

_TRIAL = Trial("This tells how fast this machine speaks.", 2)

_logger = logging.getLogger(__name__)


def load_kokoro(
    inbox: Inbox,
    outbox: Outbox,
    *,
    model: str | None = None,
    rows: int | None = None,
    threads: int | None = None,
    device: str | None = None,
) -> PhonemeEngine:
    """Load the weights and all voices of a folder, by default of the published files.

    By default as many contexts may be open as this machine speaks in real time, measured at start.
    `threads` rows are computed at the same time, by default one for each core. The device is `cpu`,
    `cuda` or `cuda:N`; by default the faster of the CPU and the first GPU, if ONNX Runtime can use
    one.

    Raises:
        CheckpointError: a package is missing, or the files are not here and cannot be downloaded,
            or are not those of Kokoro, or the device cannot be used.
    """
    files = find(model)
    import onnxruntime

    chosen = providers(device, onnxruntime.get_available_providers())
    voices, provider = fastest(chosen, lambda provider: load_voices(files, provider))
    trial = _TRIAL if provider == CPU else replace(_TRIAL, clock=time.perf_counter)
    threads = threads or os.cpu_count() or 1
    return PhonemeEngine(
        inbox,
        outbox,
        voices,
        name="kokoro",
        model=f"Kokoro-82M v1.0, {files.model.name}",
        max_rows=rows or trial.rows(voices, threads),
        threads=threads,
    )


def fastest(
    choices: Sequence[Provider], load: Callable[[Provider], dict[str, LoadedVoice]]
) -> tuple[dict[str, LoadedVoice], Provider]:
    """Load voices with the provider that speaks fastest; only one choice is not measured.

    A GPU may lose: it has no kernels for weights in 8 bits, which are then computed on the CPU.

    Raises:
        CheckpointError: none can be loaded.
    """
    if len(choices) == 1:
        return load(choices[0]), choices[0]
    trial = replace(_TRIAL, clock=time.perf_counter)
    loaded: list[tuple[float, dict[str, LoadedVoice], Provider]] = []
    for provider in choices:
        try:
            voices = load(provider)
            loaded.append((trial.rtf(voices), voices, provider))
        except Exception as error:  # of ONNX Runtime, whose GPU may fail in many ways
            if provider == choices[-1]:
                raise
            _logger.warning("Kokoro does without %s: %s", provider, error)
    _, voices, provider = min(loaded, key=lambda each: each[0])
    return voices, provider


def load_voices(files: Files, provider: Provider = CPU) -> dict[str, LoadedVoice]:
    """Load the voices that the folder has, in their published order."""
    weights = Graph(files.model, provider)
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
