"""The talker: from a prompt, or the previous frame and its text, to codebook 0 of the next frame.

The rows of a batch are independent of each other. The caller passes earlier keys and values as a
`KVCache`, and samples.

Source: qwen-tts 0.1.1, `Qwen3TTSTalkerForConditionalGeneration`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.attention import KVCache
from voiceagent_tts.model.config import TalkerConfig
from voiceagent_tts.model.layers import (
    Linear,
    Operations,
    Transformer,
    Weights,
    inverse_frequencies,
    rotation,
)

CONTROL_IDS = 1024
"""Control ids (not codes) at the end of the talker's vocabulary."""


class Talker(nn.Module):
    """The talker network."""

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
        self._operations = operations
        self.head = Linear(width, config.vocab_size)
        self.frequencies = nn.Buffer(inverse_frequencies(config.head_dim, config.rope_theta))
        ids = torch.arange(config.vocab_size)
        is_end = ids == config.codec_eos_token_id
        is_control = (ids >= config.vocab_size - CONTROL_IDS) & is_end.logical_not()
        self.is_end = nn.Buffer(is_end)
        """[V] bool, the id that ends a sequence."""
        self.is_control = nn.Buffer(is_control)
        """[V] bool, ids that are never a code."""

    def embed_text(self, ids: Tensor) -> Tensor:
        """Embed text token ids [...] -> [..., hidden]."""
        embedded = F.embedding(ids, self.text_embedding)
        return self.text_projection_out(F.silu(self.text_projection_in(embedded)))

    def embed_codec(self, ids: Tensor) -> Tensor:
        """Embed codes of codebook 0 and control ids [...] -> [..., hidden]."""
        return F.embedding(ids, self.codec_embedding)

    def run(self, x: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Run new, consecutive positions of every row: a prompt, a part of one, or one step.

        x: [B, T, hidden], their embeddings; positions: [B, T] int64; `cache` has the keys and
        values of earlier positions, and stores the new ones. Returns [B, T, hidden].
        """
        return self.transformer(x, rotation(positions, self.frequencies, x.dtype), cache)

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every id: [B, hidden] -> [B, V]."""
        return self._operations.product(hidden, self.head)

    def weights(self) -> Weights:
        """Yield this module's tensors under the checkpoint's names."""
        yield "talker.model.text_embedding.weight", self.text_embedding
        yield "talker.model.codec_embedding.weight", self.codec_embedding
        yield from self.text_projection_in.weights("talker.text_projection.linear_fc1")
        yield from self.text_projection_out.weights("talker.text_projection.linear_fc2")
        yield from self.transformer.weights("talker.model")
        yield from self.head.weights("talker.codec_head")
