"""Loads Pocket TTS: its models, their precision, and the number of rows that this CPU can speak."""

import logging
import os
import statistics
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import torch

from voiceagent_tts.clones import VoiceFolder
from voiceagent_tts.core import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.garbage import without_collection
from voiceagent_tts.hub import fingerprint
from voiceagent_tts.plugins.pocket.engine import PocketEngine
from voiceagent_tts.plugins.pocket.published import (
    check_models,
    config_path,
    is_published,
    language_of,
    model_key,
)
from voiceagent_tts.plugins.pocket.speech import Speech
from voiceagent_tts.plugins.pocket.states import PocketModel, VoiceStates
from voiceagent_tts.seam.engine import Inbox, Outbox

_MAX_ROWS = 16
_MAX_LOAD = 0.9
"""Share of the CPU's measured speed that rows may take."""
_WARM_UP_FRAMES = 3
_MEASURED_FRAMES = 7
_FRAME_S = FRAME_SAMPLES / SAMPLE_RATE_HZ

_logger = logging.getLogger(__name__)


def load_pocket(
    inbox: Inbox,
    outbox: Outbox,
    *,
    voices: str,
    models: Sequence[str],
    rows: int | None = None,
    threads: int | None = None,
    precision: Literal["float32", "int8"] = "float32",
) -> PocketEngine:
    """Load models by name or configuration file, one for each language, and a folder of clones.

    By default as many contexts may be open as this CPU speaks in real time, measured at start, at
    most 16. `threads` rows are computed at the same time, by default one for each core. With `int8`
    the language models have weights of 8 bits.

    Raises:
        CheckpointError: a model is unknown, or its files are neither here nor on the hub.
        InvalidRequestError: two models speak one language.
    """
    check_models(models)
    loaded = [load_model(name, quantize=precision == "int8") for name in models]
    threads = threads or os.cpu_count() or 1
    return PocketEngine(
        inbox,
        outbox,
        loaded,
        VoiceStates(models, VoiceFolder(Path(voices))),
        max_rows=rows or _measure_rows(loaded[0], threads),
        threads=threads,
    )


def load_model(name: str, *, quantize: bool = False) -> PocketModel:
    """Load one model with the package's own loader, which downloads missing files.

    Raises:
        CheckpointError: its files are neither on this machine nor on the hub, or do not fit.
    """
    # Imported on first use: it brings PyTorch's compiler, and takes seconds.
    with without_collection():
        from pocket_tts import TTSModel

    # Its warnings quote the text to speak, which logs must never contain.
    logging.getLogger("pocket_tts").setLevel(logging.ERROR)
    path = config_path(name)
    try:
        network = TTSModel.load_model(config=path)
    except Exception as error:  # of torch, pydantic, safetensors, or the hub's HTTP library
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise CheckpointError(f"Pocket TTS {name}: cannot be loaded: {reason}") from error
    network.requires_grad_(False)
    if quantize:
        _quantize(network.flow_lm.transformer)
    return PocketModel(
        key=model_key(name),
        language=language_of(name),
        weights=str(network.config.weights_path),
        network=network,
        is_published=is_published(name),
        revision=_revision(str(network.config.weights_path), quantize=quantize),
    )


def _quantize(transformer: torch.nn.Module) -> None:
    """Store the attention and feed-forward layers in 8 bits, and compute with PyTorch's kernels.

    The package's own option uses torchao where that is installed. Its tensors are Python objects,
    made to be compiled: not compiled they take three times as long as these kernels.
    """
    from torch.ao.quantization import quantize_dynamic

    quantize_dynamic(transformer, {torch.nn.Linear}, dtype=torch.qint8, inplace=True)


def _revision(weights: str, *, quantize: bool) -> str:
    """What shapes the sound of a model: its weights, whose address may name their commit."""
    path = Path(weights)
    content = fingerprint(path) if path.is_file() else weights
    return f"{version('pocket-tts')} {content} {'int8' if quantize else 'float32'}"


def _measure_rows(model: PocketModel, threads: int) -> int:
    """Count the rows that this CPU speaks in real time, from the pace of `threads` rows."""
    noise = 0.1 * torch.randn(1, SAMPLE_RATE_HZ, generator=torch.Generator().manual_seed(0))
    state = model.network.get_state_for_audio_prompt(noise)
    speeches = [Speech(model.network, state, "One, two, three.") for _ in range(threads)]
    steps_s = [_step_s(speeches) for _ in range(_WARM_UP_FRAMES + _MEASURED_FRAMES)]
    for speech in speeches:
        speech.cancel()
    rows = _MAX_LOAD * threads * _FRAME_S / statistics.median(steps_s[_WARM_UP_FRAMES:])
    if rows < 1:
        _logger.warning("this CPU speaks %s slower than real time; try precision int8", model.key)
    return min(max(int(rows), 1), _MAX_ROWS)


def _step_s(speeches: list[Speech]) -> float:
    began_s = time.perf_counter()
    for speech in speeches:
        speech.start_frame()
    for speech in speeches:
        speech.next_frame()
    return time.perf_counter() - began_s
