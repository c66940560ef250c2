"""Loads the forced aligner from its folder onto its device."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.garbage import without_collection
from voiceagent_tts.hub import ALIGNER_ID, find_model
from voiceagent_tts.model.checkpoint import find_device
from voiceagent_tts.plugins.forced.aligner import ForcedAligner
from voiceagent_tts.plugins.forced.placement import place_aligner
from voiceagent_tts.plugins.forced.sessions import ForcedSessions, Pacing
from voiceagent_tts.seam.aligner_messages import AlignInbox, AlignOutbox
from voiceagent_tts.text.morphemes import japanese_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen3ASRForTokenClassification, Qwen3ASRProcessor

Precision = Literal["float32", "bfloat16", "float16"]

_MODEL_TYPE = "qwen3_asr"
_AUDIO_TOKEN, _TIMESTAMP_TOKEN = "<|audio_pad|>", "<timestamp>"

_GPU_PACING = Pacing(pass_samples=SAMPLE_RATE_HZ, step_samples=120 * SAMPLE_RATE_HZ)
_CPU_PACING = Pacing(pass_samples=8 * SAMPLE_RATE_HZ, step_samples=10 * SAMPLE_RATE_HZ)
"""On a CPU a second of audio takes a quarter of a second, and a step must stay shorter than the
heartbeat timeout."""


def load_forced(
    inbox: AlignInbox,
    outbox: AlignOutbox,
    *,
    model: str,
    device: str | None = None,
    engine_devices: Sequence[str | None] = (),
    threads: int | None = None,
) -> ForcedSessions:
    """Load the aligner of a worker process, from a folder or by the id of a downloaded model.

    The device is `cpu`, `cuda` or `cuda:N`; by default a GPU without an engine, of those that
    engines name as `engine_devices`, else the CPU. Without `threads` PyTorch chooses their number.

    Raises:
        CheckpointError: a file or a key is missing, or it is another model.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    placement = place_aligner(device, engine_devices)
    aligner = load_aligner(model, placement.device)
    pacing = _CPU_PACING if placement.device == "cpu" else _GPU_PACING
    return ForcedSessions(inbox, outbox, aligner, pacing, placement.reason)


def load_aligner(
    model: str | Path,
    device: str | None = None,
    precision: Precision | None = None,
) -> ForcedAligner:
    """Load a forced aligner from a folder in transformers' layout, or a downloaded model's id.

    The default device is a GPU where there is one; the default precision is bfloat16 on a GPU and
    float32 elsewhere.

    Raises:
        CheckpointError: a file or a key is missing, or it is another model.
        InvalidRequestError: there is no such device.
    """
    folder = find_model(str(model))
    _check_model_type(folder)
    place = find_device(device)
    precision = precision or ("float32" if place.type == "cpu" else "bfloat16")
    network = _load_network(folder, getattr(torch, precision), place)
    processor = _load_processor(folder, network)
    japanese_tokenizer()  # loaded now, so that the first Japanese clip need not wait for it
    return ForcedAligner(network, processor)


def _check_model_type(folder: Path) -> None:
    """Refuse any other model before its weights are read."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
        model_type = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: expected a model's configuration; {error}") from error
    if model_type != _MODEL_TYPE:
        raise CheckpointError(f"{path}: model_type: expected {_MODEL_TYPE}, got {model_type}")
    if "thinker_config" in config:
        raise CheckpointError(
            f"{path}: thinker_config: expected the layout of transformers, as in {ALIGNER_ID}"
        )


def _load_network(
    folder: Path, dtype: torch.dtype, device: torch.device
) -> "Qwen3ASRForTokenClassification":
    # Imported on first use: it brings half of PyTorch's compiler, and takes seconds.
    with without_collection():
        from transformers import Qwen3ASRForTokenClassification
        from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # a worker process has no terminal
    try:
        loaded: Any = Qwen3ASRForTokenClassification.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, with the name of the key
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: expected the weights of {ALIGNER_ID}; {error}") from error
    network, info = loaded
    for key in sorted(info["missing_keys"]):
        raise CheckpointError(f"{folder}: {key}: is not in the safetensors files")
    for key, stored, expected in info["mismatched_keys"]:
        raise CheckpointError(
            f"{folder}: {key}: shape is {list(stored)}, expected {list(expected)}"
        )
    return network.to(device).eval()


def _load_processor(folder: Path, network: "Qwen3ASRForTokenClassification") -> "Qwen3ASRProcessor":
    from transformers import Qwen3ASRProcessor  # on first use, as the network

    try:
        processor = Qwen3ASRProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder}: expected the tokenizer and the feature extractor of {ALIGNER_ID}; {error}"
        ) from error
    for key, token in (("audio_token_id", _AUDIO_TOKEN), ("timestamp_token_id", _TIMESTAMP_TOKEN)):
        expected = getattr(network.config, key)
        token_id = processor.tokenizer.convert_tokens_to_ids(token)
        if token_id != expected:
            raise CheckpointError(
                f"{folder}: config.json: {key}: is {expected}, but {token} is {token_id} in the "
                "tokenizer's files"
            )
    return processor
