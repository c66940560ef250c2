"""Speaks a text with the weights of a run, to be listened to while it trains."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.guards import frame_cap
from voiceagent_tts.model.checkpoint import build_network
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.config import read_generation_config, read_model_config
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Cloned, PromptBuilder
from voiceagent_tts.model.sampling import sampling_params
from voiceagent_tts.model.tokenizer import Tokenizer
from voiceagent_tts.plugins.training.batches import Layout
from voiceagent_tts.plugins.training.lora import merged_weights
from voiceagent_tts.plugins.training.network import TrainingNetwork

_SEED = 1
"""Equal for all samples of a run, so that only the weights differ."""


class Speaker:
    """Speaks with changing weights of one Base model.

    Args:
        base: folder of the Base model.
        device: device to speak on.
        speaker_embedding: [D] float32.
        layout: place of the text.
    """

    def __init__(
        self, base: Path, device: torch.device, speaker_embedding: Tensor, layout: Layout
    ) -> None:
        self._base, self._device = base, device
        self._voice = Cloned(speaker_embedding)
        self._is_streaming = layout == "streaming"

    def speak(self, network: TrainingNetwork, text: str) -> npt.NDArray[np.float32]:
        """Return speech: [S] float32 in [-1, 1], 24 kHz."""
        config = read_model_config(self._base)
        tokenizer = Tokenizer(self._base, config.im_start_token_id, config.im_end_token_id)
        prompt = PromptBuilder(config, tokenizer).build(
            text, self._voice, is_streaming=self._is_streaming
        )
        cap = frame_cap(len(tokenizer.encode_turn("assistant", text)))
        params = sampling_params(read_generation_config(self._base), _SEED)
        request = Request(prompt, params, cap)
        with torch.inference_mode():
            plain = speaking_network(network, self._device)
            (codes,) = generate_codes(plain, [request], 1, len(prompt) + cap + 1)
            codec = load_codec(self._base, device=self._device)
            return codec.decode(codes.to(self._device)).cpu().numpy()


def speaking_network(network: TrainingNetwork, device: torch.device) -> Network:
    """Return a copy of a network's weights in the form that the engine runs."""
    weights = dict(merged_weights(network))
    dtype = next(iter(weights.values())).dtype
    plain = build_network(network.config, dtype, device)
    with torch.no_grad():
        for name, target in plain.weights():
            target.copy_(weights[name])
        plain.code_predictor.fold(plain.talker.codec_embedding)
    return plain
