"""A checkpoint's folder becomes an engine on a device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from voiceagent_tts.core import Inbox, Outbox
from voiceagent_tts.engine.engine import Qwen3Engine
from voiceagent_tts.engine.runner import Runner
from voiceagent_tts.engine.voices import VoiceShelf
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.hub import find_model
from voiceagent_tts.voices import VoiceFolder

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class Qwen3Options:
    """What to load and where.

    Attributes:
        model: folder of a model, or the id of one that was downloaded.
        device: `cpu`, `cuda`, `cuda:1`; None for a GPU where there is one.
        precision: of talker and code predictor; None for bfloat16 on a GPU and float32 elsewhere.
        rows: contexts at a time.
        capacity: positions of a row: prompt and frames, 12.5 a second.
        voices: folder of cloned voices, for Base models.
        threads: on a CPU; None for PyTorch's choice. Workers that share the cores must share the
            threads too: those that wait for each other's do nothing else.
    """

    model: str
    device: str | None = None
    precision: Precision | None = None
    rows: int = 8
    capacity: int = 2048
    voices: str | None = None
    threads: int | None = None


def load_engine(options: Qwen3Options, inbox: Inbox, outbox: Outbox) -> Qwen3Engine:
    """Load the model and its codec.

    Raises:
        CheckpointError: a file is missing, partial, or of a kind that this network cannot compute.
    """
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    is_cpu = torch.device(device).type == "cpu"
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    precision = options.precision or ("float32" if is_cpu else "bfloat16")
    folder = find_model(options.model)
    checkpoint = load_checkpoint(folder, getattr(torch, precision), device)
    codec = load_codec(folder, torch.float32, device)
    runner = Runner(checkpoint, codec, options.rows, options.capacity)
    folder_of_clones = VoiceFolder(Path(options.voices)) if options.voices else None
    shelf = VoiceShelf(checkpoint.config, folder_of_clones)
    return Qwen3Engine(inbox, outbox, checkpoint, runner, shelf, folder.name)
