"""The talker and code predictor of one checkpoint, and the embeddings that need both."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voiceagent_tts.model.code_predictor import CodePredictor
from voiceagent_tts.model.config import ModelConfig
from voiceagent_tts.model.layers import Kernels, Weights
from voiceagent_tts.model.prompt import SPEAKER
from voiceagent_tts.model.talker import Talker


@dataclass(frozen=True, slots=True)
class PromptIds:
    """Positions of R prompts on the device; the columns of a `Prompt`.

    Attributes:
        text_ids: [R, T] int64.
        codec_ids: [R, T] int64.
        rest: [R, T, K - 1] int64, codes of codebooks 1 and up.
        is_reference: [R, T] bool, True at reference frames: only there `rest` is used.
        speaker: [R, hidden] float32, speaker embeddings.
    """

    text_ids: Tensor
    codec_ids: Tensor
    rest: Tensor
    is_reference: Tensor
    speaker: Tensor


class Network(nn.Module):
    """The part of a checkpoint that turns text into codes."""

    def __init__(
        self, config: ModelConfig, talker: Talker, code_predictor: CodePredictor, kernels: Kernels
    ) -> None:
        super().__init__()
        self.kernels: Kernels = kernels
        self.config = config
        self.codebooks = config.talker_config.num_code_groups
        """K, the number of codes per frame."""
        self.talker = talker
        self.code_predictor = code_predictor

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.talker.codec_embedding.device

    def embed_frames(self, codes: Tensor) -> Tensor:
        """Embed frames [..., K] -> [..., hidden]: the sum over the codebooks."""
        first = self.talker.embed_codec(codes[..., :1])
        rest = self.code_predictor.embed(codes[..., 1:])
        return torch.cat((first, rest), dim=-2).sum(dim=-2).to(first.dtype)

    def embed_prompt(self, prompt: PromptIds) -> Tensor:
        """Embed R prompts: [R, T, hidden], the talker's input at each position."""
        talker, codec_ids = self.talker, prompt.codec_ids
        first = talker.embed_codec(codec_ids.clamp(min=0)) * (codec_ids >= 0)[..., None]
        rest = self.code_predictor.embed(prompt.rest) * prompt.is_reference[..., None, None]
        codec = torch.cat((first[..., None, :], rest), dim=-2).sum(dim=-2).to(first.dtype)
        speaker = prompt.speaker[:, None].to(first.dtype)
        codec = torch.where((codec_ids == SPEAKER)[..., None], speaker, codec)
        return talker.embed_text(prompt.text_ids) + codec

    def weights(self) -> Weights:
        """Yield all tensors under the checkpoint's names."""
        yield from self.talker.weights()
        yield from self.code_predictor.weights()
