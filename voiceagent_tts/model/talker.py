"""The talker: a prompt, or the previous frame with its text, becomes codebook 0 of the next frame.

Knows no requests and no sampling: it returns hidden states and logits. Rows of one batch are
independent of each other; a row's memory is its part of a `KVCache`.

Source: qwen-tts 0.1.1, `Qwen3TTSTalkerForConditionalGeneration`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.model.config import TalkerConfig, TransformerConfig
from voiceagent_tts.model.layers import (
    Attend,
    Keys,
    Linear,
    Transformer,
    Weights,
    inverse_frequencies,
    rotation,
)

CONTROL_IDS = 1024
"""How many ids at the end of the talker's vocabulary are no codes."""


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of every position of every row, each [L, B, S, Hkv, D], written in place.

    What lies at or beyond a row's position is never looked at, so that a row is reset by starting
    again at position 0.
    """

    keys: Tensor
    values: Tensor

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Positions of a row."""
        return self.keys.shape[2]


def empty_cache(config: TransformerConfig, rows: int, capacity: int, like: Tensor) -> KVCache:
    """A cache for `rows` rows of `capacity` positions, in the precision and place of `like`.

    It holds zeros: what a mask hides must still be finite.
    """
    shape = (
        config.num_hidden_layers,
        rows,
        capacity,
        config.num_key_value_heads,
        config.head_dim,
    )
    return KVCache(like.new_zeros(shape), like.new_zeros(shape))


class _PromptMemory:
    """Prefill: rows start at position 0 and see of each prompt what came before."""

    def __init__(self, cache: KVCache, rows: Tensor) -> None:
        self._cache, self._rows = cache, rows

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        steps = keys.shape[1]
        self._cache.keys[layer, self._rows, :steps] = keys
        self._cache.values[layer, self._rows, :steps] = values
        return Keys(keys, values, lengths=steps)


class _StepMemory:
    """A step: every row writes one position of its own and sees its positions up to there."""

    def __init__(self, cache: KVCache, positions: Tensor, window: int) -> None:
        self._cache, self._positions, self._window = cache, positions, window
        self._rows = torch.arange(cache.rows, device=positions.device)
        self._lengths = (positions + 1).int()
        hidden = torch.arange(window, device=positions.device) > positions[:, None]
        zeros = cache.keys.new_zeros(cache.rows, window)
        self._mask = zeros.masked_fill_(hidden, float("-inf"))[:, None, None]  # [B, 1, 1, S]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        of_keys, of_values = self._cache.keys[layer], self._cache.values[layer]
        place = (self._rows, self._positions)
        of_keys.index_put_(place, keys[:, 0])
        of_values.index_put_(place, values[:, 0])
        return Keys(
            of_keys[:, : self._window], of_values[:, : self._window], self._lengths, self._mask
        )


class Talker(nn.Module):
    """Weights of the talker and its two passes.

    Args:
        config: sizes.
        attend: how attention is computed.
    """

    def __init__(self, config: TalkerConfig, attend: Attend) -> None:
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
        self.transformer = Transformer(config, attend)
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

    def prefill(self, prompts: Tensor, lengths: Tensor, rows: Tensor, cache: KVCache) -> Tensor:
        """Start `rows` again, with these prompts.

        Args:
            prompts: [R, T, hidden], each row's prompt first and anything after it.
            lengths: [R] int64, positions of each prompt.
            rows: [R] int64, their rows in `cache`.
            cache: written in place.

        Returns:
            [R, hidden] of the last position of each prompt.
        """
        positions = torch.arange(prompts.shape[1], device=prompts.device)[None]
        rotated = rotation(positions, self.frequencies, prompts.dtype)
        hidden = self.transformer(prompts, rotated, _PromptMemory(cache, rows))
        return hidden[torch.arange(len(rows), device=prompts.device), lengths - 1]

    def step(self, x: Tensor, positions: Tensor, cache: KVCache, window: int) -> Tensor:
        """One position of every row.

        Args:
            x: [B, hidden], embedding of the new position.
            positions: [B] int64, where it goes.
            cache: written in place at `positions`.
            window: more than every position, at most the capacity: how far keys are read.

        Returns:
            [B, hidden].
        """
        rotated = rotation(positions[:, None], self.frequencies, x.dtype)
        memory = _StepMemory(cache, positions, window)
        return self.transformer(x[:, None], rotated, memory)[:, 0]

    def weights(self) -> Weights:
        """This module's tensors under the checkpoint's names."""
        yield "talker.model.text_embedding.weight", self.text_embedding
        yield "talker.model.codec_embedding.weight", self.codec_embedding
        yield from self.text_projection_in.weights("talker.text_projection.linear_fc1")
        yield from self.text_projection_out.weights("talker.text_projection.linear_fc2")
        yield from self.transformer.weights("talker.model")
        yield from self.head.weights("talker.codec_head")
