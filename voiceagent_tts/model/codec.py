"""The codec (Qwen3-TTS-Tokenizer-12Hz): frames of codes to samples, at once or as a stream.

Loads from the subfolder `speech_tokenizer/` of a model or from a folder of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.model.checkpoint import building, fill, open_weights
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CODEC_FOLDER, CodecConfig, read_codec_config
from voiceagent_tts.model.products import pack

Progress = Callable[[int, int], None]
"""Function called with the finished and the total number of samples or frames."""

_FRAMES_PER_CALL = 12


@dataclass(frozen=True, slots=True)
class Codec:
    """A loaded codec."""

    config: CodecConfig
    decoder: CodecDecoder

    @property
    def codebooks(self) -> int:
        """K, the number of codes per frame."""
        return self.config.decoder_config.num_quantizers

    @property
    def codebook_size(self) -> int:
        """Number of codes per codebook."""
        return self.config.decoder_config.codebook_size

    def decode(self, codes: Tensor, progress: Progress | None = None) -> Tensor:
        """Decode the codes of a whole recording, [F, K] int64.

        Returns:
            [F * 1920] float32 in [-1, 1], 24 kHz, on the codec's device.
        """
        state = self.decoder.new_state(1, _FRAMES_PER_CALL)
        samples = codes.new_empty(len(codes) * FRAME_SAMPLES, dtype=torch.float32)
        for start in range(0, len(codes), _FRAMES_PER_CALL):
            portion = codes[start : start + _FRAMES_PER_CALL]
            end = start + len(portion)
            decoded = self.decoder.decode(portion.T[None], state)[0]
            samples[start * FRAME_SAMPLES : end * FRAME_SAMPLES] = decoded
            if progress is not None:
                progress(end, len(codes))
        return samples


def load_codec(
    folder: Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    is_packed: bool = True,
) -> Codec:
    """Load a codec from the folder of a model, or from its own.

    With `is_packed`, weights on a CPU are rearranged for its vector unit. Samples differ by
    rounding only.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
    """
    folder = codec_folder(folder)
    config = read_codec_config(folder)
    _check_codebooks(config, folder)
    with building(dtype, torch.device(device)):
        decoder = CodecDecoder(config.decoder_config)
    fill(decoder.weights(), open_weights(folder), folder)
    if is_packed:
        pack(decoder)
    return Codec(config, decoder)


def codec_folder(folder: Path) -> Path:
    """Return the folder of the codec: within that of a model, or this one."""
    inner = folder / CODEC_FOLDER
    return inner if inner.is_dir() else folder


def _check_codebooks(config: CodecConfig, folder: Path) -> None:
    encoded, decoded = config.encoder_valid_num_quantizers, config.decoder_config.num_quantizers
    if encoded != decoded:
        raise CheckpointError(
            f"{folder / 'config.json'}: encoder_valid_num_quantizers: expected the "
            f"{decoded} of decoder_config.num_quantizers, got {encoded}"
        )
