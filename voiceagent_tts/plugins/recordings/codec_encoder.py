"""The codec's encoder: from reference audio to frames of codes.

It is the encoder of Mimi in float32, assembled from the parts in `transformers`. Convolutions run
over portions of long audio to limit memory; each portion starts with as much earlier audio as its
first output depends on. Knows no audio files; the sample rate is always 24 kHz.

Source: Mimi (Défossez et al., "Moshi", 2024); qwen-tts 0.1.1, `Qwen3TTSTokenizerV2Encoder`.
"""

import math
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.garbage import without_collection
from voiceagent_tts.model.checkpoint import building, fill, open_weights
from voiceagent_tts.model.codec import Progress, codec_folder
from voiceagent_tts.model.config import read_codec_config
from voiceagent_tts.model.layers import Weights

_PORTION_FRAMES = 125  # 10 s
_LATENTS_PER_FRAME = 2  # transformer positions per frame; the last convolution halves them


class CodecEncoder(nn.Module):
    """Encodes samples to codes."""

    def __init__(self, config: dict[str, Any], codebooks: int) -> None:
        # A slow import, and few processes encode.
        with without_collection():
            from transformers import MimiConfig
            from transformers.models.mimi.modeling_mimi import (
                MimiConv1d,
                MimiEncoder,
                MimiSplitResidualVectorQuantizer,
                MimiTransformerModel,
            )

        super().__init__()
        mimi = MimiConfig(**config)
        mimi._attn_implementation = "sdpa"
        width = mimi.hidden_size
        self.codebooks = codebooks
        self.encoder = MimiEncoder(mimi)
        self.encoder_transformer = MimiTransformerModel(mimi)
        self.downsample = MimiConv1d(
            mimi, width, width, 2 * _LATENTS_PER_FRAME, _LATENTS_PER_FRAME,
            bias=False, pad_mode="replicate",
        )  # fmt: skip
        self.quantizer = MimiSplitResidualVectorQuantizer(mimi)
        self._before_frames = math.ceil(_reach_samples(self.encoder) / FRAME_SAMPLES)
        self.requires_grad_(False)

    def encode(self, samples: Tensor, progress: Progress | None = None) -> Tensor:
        """Encode audio; an incomplete last frame is padded with zeros.

        Args:
            samples: [S] float32, 24 kHz.
            progress: called with the samples that passed the convolutions, and all samples.

        Returns:
            [F, K] int64, codebook 0 first; F is S / 1920, rounded up.
        """
        latents = self._convolve(samples, progress).transpose(1, 2)
        hidden = self.encoder_transformer(latents).last_hidden_state
        halved = self.downsample(hidden.transpose(1, 2))
        codes = self.quantizer.encode(halved, self.codebooks)  # [K, 1, F]
        return codes[:, 0, : -(-len(samples) // FRAME_SAMPLES)].T

    def _convolve(self, samples: Tensor, progress: Progress | None) -> Tensor:
        """[S] -> [1, C, 2 F]."""
        portions: list[Tensor] = []
        step = _PORTION_FRAMES * FRAME_SAMPLES
        for start in range(0, len(samples), step):
            before = min(start, self._before_frames * FRAME_SAMPLES)
            portion = self.encoder(samples[start - before : start + step][None, None])
            portions.append(portion[..., before // FRAME_SAMPLES * _LATENTS_PER_FRAME :])
            if progress is not None:
                progress(min(start + step, len(samples)), len(samples))
        return torch.cat(portions, dim=-1)

    def weights(self) -> Weights:
        """Yield all tensors under the checkpoint's names, including unused quantisers."""
        for name, tensor in self.state_dict().items():
            yield f"encoder.{name}", tensor


def _reach_samples(convolutions: nn.Module) -> int:
    """Return how many earlier samples an output depends on."""
    reach, rate = 0, 1
    for module in convolutions.modules():
        if isinstance(module, nn.Conv1d):
            reach += (module.kernel_size[0] - 1) * module.dilation[0] * rate
            rate *= module.stride[0]
    return reach


def load_codec_encoder(folder: Path, device: torch.device | str = "cpu") -> CodecEncoder:
    """Load only the encoder of a codec, in float32.

    Args:
        folder: folder of a model or of the codec alone.
        device: device of the weights.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
    """
    folder = codec_folder(folder)
    config = read_codec_config(folder)
    decoded = config.decoder_config.codebook_size
    encoded = config.encoder_config.get("codebook_size", decoded)
    if encoded != decoded:
        raise CheckpointError(
            f"{folder / 'config.json'}: encoder_config: codebook_size is {encoded}, expected the "
            f"{decoded} of decoder_config"
        )
    try:
        with building(torch.float32, torch.device(device)):
            encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
    except (TypeError, ValueError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{folder / 'config.json'}: encoder_config: {reason}") from error
    fill(encoder.weights(), open_weights(folder), folder)
    return encoder
