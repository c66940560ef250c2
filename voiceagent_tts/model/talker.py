"""The talker: a prompt, or the previous frame with its text, becomes codebook 0 of the next frame.

Knows no requests and no sampling: it returns hidden states and logits. Rows of one batch are
independent of each other; what they remember is passed in as a `KVCache`.

Source: qwen-tts 0.1.1, `Qwen3TTSTalkerForConditionalGeneration`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.config import TalkerConfig
from voiceagent_tts.model.layers import (
    KVCache,
    Linear,
    Operations,
    Transformer,
    Weights,
    inverse_frequencies,
    rotation,
)

CONTROL_IDS = 1024
"""How many ids at the end of the talker's vocabulary are no codes."""


class Talker(nn.Module):
    """Weights of the talker, and the pass over new positions.

    Args:
        config: sizes.
        operations: that layers are made of beside their matrices.
    """

    def __init__(self, config: TalkerConfig, operations: Operations) -> None:
        super().__init__()
        self.config = config
        text_width, width = config.text_hidden_size, config.hidden_size
        self.text_embedding = nn.Parameter(
            torch.empty(config.text_vocab_size, text_width), requires_grad=False
        )
        self.text_projection_in = Linear(text_width, text_width, bias=True)
        self.text_projection_out = Linear(text_width, width, bias=True)
        self.codec_embedding = nn.Parameter(
            torch.empty(config.vocab_size, width), requires_grad=False
        )
        self.transformer = Transformer(config, operations)
        self.head = Linear(width, config.vocab_size)
        self.frequencies = nn.Buffer(inverse_frequencies(config.head_dim, config.rope_theta))
        ids = torch.arange(config.vocab_size)
        is_end = ids == config.codec_eos_token_id
        is_control = (ids >= config.vocab_size - CONTROL_IDS) & ~is_end
        self.is_end = nn.Buffer(is_end)
        """[V] bool: the id that ends a row."""
        self.is_control = nn.Buffer(is_control)
        """[V] bool: ids that no frame may have."""

    def embed_text(self, ids: Tensor) -> Tensor:
        """Text token ids [...] -> [..., hidden]."""
        embedded = F.embedding(ids, self.text_embedding)
        return self.text_projection_out(F.silu(self.text_projection_in(embedded)))

    def embed_codec(self, ids: Tensor) -> Tensor:
        """Codes of codebook 0 and control ids [...] -> [..., hidden]."""
        return F.embedding(ids, self.codec_embedding)

    def run(self, x: Tensor, positions: Tensor, memory: KVCache) -> Tensor:
        """New positions of every row: a prompt, a part of one, or a step.

        Args:
            x: [B, T, hidden], their embeddings.
            positions: [B, T] int64, consecutive.
            memory: of the positions before them; takes these in.

        Returns:
            [B, T, hidden].
        """
        return self.transformer(x, rotation(positions, self.frequencies, x.dtype), memory)

    def weights(self) -> Weights:
        """This module's tensors under the checkpoint's names."""
        yield "talker.model.text_embedding.weight", self.text_embedding
        yield "talker.model.codec_embedding.weight", self.codec_embedding
        yield from self.text_projection_in.weights("talker.text_projection.linear_fc1")
        yield from self.text_projection_out.weights("talker.text_projection.linear_fc2")
        yield from self.transformer.weights("talker.model")
        yield from self.head.weights("talker.codec_head")
