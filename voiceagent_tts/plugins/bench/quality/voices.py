"""Whether a clip has the voice of its reference: by the speaker encoder of a Qwen3-TTS Base model.

Its embeddings are not those of papers, which use WavLM fine-tuned to verify speakers, so their
similarities are on another scale. What compares is two systems, and a clip with its own reference
against others: a swapped voice is nearest to a reference that is not its own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.plugins.bench.quality.clips import Clip, Samples
from voiceagent_tts.plugins.bench.quality.measures import Values
from voiceagent_tts.plugins.bench.quality.speaking import read_samples

Embedding = npt.NDArray[np.float64]
Embed = Callable[[Samples], Embedding]
"""[S] float32 at 24 kHz -> [D], of length 1. Raises InvalidRequestError for too short audio."""


def open_encoder(folder: Path) -> Embed:
    """Load the speaker encoder of a Base model, on the CPU.

    Raises:
        CheckpointError: a file is missing or not supported.
        InvalidRequestError: the model is not a Base model, or a package is missing.
    """
    try:
        import torch

        from voiceagent_tts.model.clone import load_speaker_encoder
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"the package {error.name!r} is missing. Install it: {install_hint('bench', 'qwen3')}"
        ) from error
    encoder = load_speaker_encoder(folder)

    def embed(samples: Samples) -> Embedding:
        found = encoder.embed(torch.tensor(samples)).double().numpy()
        return found / (np.linalg.norm(found) + 1e-12)

    return embed


def voice_values(clips: Sequence[Clip], embed: Embed, common: Path | None) -> Values:
    """Similarity of each clip to its reference, and whether no other reference is nearer.

    Args:
        clips: the clips; one without a reference is left out.
        embed: the encoder.
        common: reference of clips that have none of their own.

    Raises:
        InvalidRequestError: a reference is no audio, or too short.
        OSError: it cannot be read.
    """
    values = Values()
    own = {clip.item.name: clip.item.reference or common for clip in clips}
    references = {path: embed(read_samples(path)) for path in own.values() if path is not None}
    for clip in clips:
        reference = own[clip.item.name]
        if reference is None:
            continue
        embedding = embed(clip.samples)
        near = {path: float(embedding @ other) for path, other in references.items()}
        values.add("similarity", near[reference])
        if len(references) > 1:
            nearest = max(near, key=lambda path: near[path])
            values.add_share("own_voice_percent", nearest == reference)
            if nearest != reference:
                values.examples.append({"item": clip.item.name, "finding": "another voice",
                                        "nearest": nearest.name})  # fmt: skip
    return values
