"""Talker and code predictor of one checkpoint, and the embeddings that need both.

Knows no rows and no sampling.
"""

import torch
from torch import Tensor, nn

from voiceagent_tts.model.code_predictor import CodePredictor
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.layers import Weights
from voiceagent_tts.model.prompt import SPEAKER, Prompt
from voiceagent_tts.model.talker import Talker


class Network(nn.Module):
    """The part of a checkpoint that turns text into codes.

    Args:
        config: the checkpoint's.
        talker: may be of another precision than `code_predictor`.
        code_predictor: of the same checkpoint.
    """

    def __init__(self, config: ModelConfig, talker: Talker, code_predictor: CodePredictor) -> None:
        super().__init__()
        self.config = config
        self.talker = talker
        self.code_predictor = code_predictor

    @property
    def codebooks(self) -> int:
        """K: codes of a frame."""
        return self.config.talker_config.num_code_groups

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.talker.codec_embedding.device

    def embed_frames(self, codes: Tensor) -> Tensor:
        """Frames [..., K] -> [..., hidden]: the sum over the codebooks."""
        first = self.talker.embed_codec(codes[..., :1])
        rest = self.code_predictor.embed(codes[..., 1:])
        return torch.cat((first, rest), dim=-2).sum(dim=-2).to(first.dtype)

    def embed_prompt(self, prompt: Prompt) -> Tensor:
        """[T, hidden]: what the talker reads at each position of `prompt`."""
        codec_ids = torch.tensor(prompt.codec_ids, device=self.device)
        codec = self.talker.embed_codec(codec_ids.clamp(min=0)) * (codec_ids >= 0)[:, None]
        if prompt.speaker_embedding is not None:
            codec[codec_ids == SPEAKER] = prompt.speaker_embedding.to(codec)
        if prompt.reference_codes is not None:
            frames = prompt.reference_codes.to(self.device)
            codec[-len(frames) :] = self.embed_frames(frames)
        return self.talker.embed_text(torch.tensor(prompt.text_ids, device=self.device)) + codec

    def weights(self) -> Weights:
        """All tensors under the checkpoint's names."""
        yield from self.talker.weights()
        yield from self.code_predictor.weights()
