"""The codec (Qwen3-TTS-Tokenizer-12Hz): samples to frames of codes, and back as a stream.

Loads from the subfolder `speech_tokenizer/` of a model or from a folder of its own. Knows no
requests and no audio files.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.model.checkpoint import StoredTensor, building, fill, open_weights
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.codec_encoder import CodecEncoder, Progress
from voiceagent_tts.model.config import CODEC_FOLDER, CodecConfig, read_codec_config
from voiceagent_tts.model.products import pack

_FRAMES_PER_CALL = 12


@dataclass(frozen=True, slots=True)
class Codec:
    """A loaded codec."""

    config: CodecConfig
    decoder: CodecDecoder
    encoder: CodecEncoder | None
    """Encoder; None if the codec was loaded only to decode."""

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
    has_encoder: bool = False,
    is_packed: bool = True,
) -> Codec:
    """Load a codec.

    Args:
        folder: folder of a model or of the codec alone.
        dtype: precision of the decoder; the encoder always uses float32.
        device: device of both.
        has_encoder: also load the encoder.
        is_packed: on a CPU, rearrange the decoder's weights for its vector unit. Samples differ by
            rounding only.

    Raises:
        CheckpointError: a file is missing, incomplete, or not supported by this network.
    """
    if (folder / CODEC_FOLDER).is_dir():
        folder = folder / CODEC_FOLDER
    config = read_codec_config(folder)
    _check_codebooks(config, folder)
    stored = open_weights(folder)
    with building(dtype, torch.device(device)):
        decoder = CodecDecoder(config.decoder_config)
    fill(decoder.weights(), stored, folder)
    if is_packed:
        pack(decoder)
    encoder = _load_encoder(config, stored, folder, torch.device(device)) if has_encoder else None
    return Codec(config, decoder, encoder)


def _check_codebooks(config: CodecConfig, folder: Path) -> None:
    encoded, decoded = config.encoder_valid_num_quantizers, config.decoder_config.num_quantizers
    if encoded != decoded:
        raise CheckpointError(
            f"{folder / 'config.json'}: encoder_valid_num_quantizers: expected the "
            f"{decoded} of decoder_config.num_quantizers, got {encoded}"
        )


def _load_encoder(
    config: CodecConfig, stored: dict[str, StoredTensor], folder: Path, device: torch.device
) -> CodecEncoder:
    encoded = config.encoder_config.get("codebook_size", config.decoder_config.codebook_size)
    if encoded != config.decoder_config.codebook_size:
        raise CheckpointError(
            f"{folder / 'config.json'}: encoder_config: codebook_size is {encoded}, expected the "
            f"{config.decoder_config.codebook_size} of decoder_config"
        )
    try:
        with building(torch.float32, device):
            encoder = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
    except (TypeError, ValueError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{folder / 'config.json'}: encoder_config: {reason}") from error
    fill(encoder.weights(), stored, folder)
    return encoder
