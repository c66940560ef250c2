"""The forced aligner's folder becomes a process's aligner, on a device that no engine needs."""

from dataclasses import dataclass

import torch

from voiceagent_tts.aligner.forced.aligner import ForcedAligner
from voiceagent_tts.aligner.forced.sessions import ForcedSessions, Pacing
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.seam.alignment import AlignInbox, AlignOutbox

_ON_GPU = Pacing(pass_samples=SAMPLE_RATE_HZ, step_samples=120 * SAMPLE_RATE_HZ)
_ON_CPU = Pacing(pass_samples=8 * SAMPLE_RATE_HZ, step_samples=10 * SAMPLE_RATE_HZ)
"""A second of sound takes a quarter of a second there, and a step must stay shorter than a
heartbeat may."""


@dataclass(frozen=True, slots=True)
class ForcedOptions:
    """What to load and where.

    Attributes:
        model: folder of a Qwen3-ForcedAligner, or the id of one that was downloaded.
        device: `cpu`, `cuda`, `cuda:1`; None for a GPU other than `engine_device`, else the CPU.
        engine_device: where an engine computes, as its own options name it: a second process on
            its GPU would take turns with it.
        threads: on a CPU; None for PyTorch's choice.
    """

    model: str
    device: str | None = None
    engine_device: str | None = None
    threads: int | None = None


def load_forced(options: ForcedOptions, inbox: AlignInbox, outbox: AlignOutbox) -> ForcedSessions:
    """Load the model.

    Raises:
        CheckpointError: a file or a key is missing, or it is another model.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = options.device or free_device(options.engine_device, torch.cuda.device_count())
    aligner = ForcedAligner.load(options.model, device)
    return ForcedSessions(inbox, outbox, aligner, _ON_CPU if device == "cpu" else _ON_GPU)


def free_device(engine_device: str | None, gpus: int) -> str:
    """The last GPU that is not an engine's, or the CPU."""
    engine = torch.device(engine_device or "cuda")
    taken = (engine.index or 0) if engine.type == "cuda" else None
    free = [number for number in range(gpus) if number != taken]
    return f"cuda:{free[-1]}" if free else "cpu"
