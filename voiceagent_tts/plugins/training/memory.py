"""Computes how much GPU memory a run needs, from the sizes of its model. Nothing is measured here.

Counted are weights, gradients, AdamW's two averages, activations kept for the backward pass, and
the logits. The sample that a run speaks needs a copy of the weights in the same precision, but no
gradients.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.config import ModelConfig, TransformerConfig
from voiceagent_tts.plugins.training.lora import LowRank, add_adapters
from voiceagent_tts.plugins.training.network import TrainingNetwork
from voiceagent_tts.plugins.training.options import TrainOptions

CARDS_GB = (8, 12, 16, 24, 32, 48, 80, 141)
"""Sizes of common GPUs."""
_RUNTIME_GB = 1.0
"""CUDA's own memory and what its allocator cannot use."""
_PROMPT_POSITIONS = 110
"""Positions of a prompt with about 300 characters."""
_LOGIT_BYTES = 10
"""A logit in bfloat16 and float32, and its gradient in float32."""
_ACTIVATION_BYTES = 4


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Computed memory of a run in GB (10^9 bytes).

    Attributes:
        mode: what trains, and in which precision.
        weights_gb: weights, and their copies in the precision of the products.
        training_gb: gradients and AdamW's averages.
        activations_gb: activations and logits of one batch.
    """

    mode: str
    weights_gb: float
    training_gb: float
    activations_gb: float

    @property
    def total_gb(self) -> float:
        """Everything, with CUDA's own memory."""
        return self.weights_gb + self.training_gb + self.activations_gb + _RUNTIME_GB

    @property
    def card_gb(self) -> int | None:
        """The smallest common GPU that is large enough, or None."""
        return next((size for size in CARDS_GB if size * 0.95 >= self.total_gb), None)


def memory_needs(config: ModelConfig, options: TrainOptions, clip_s: float) -> list[MemoryNeed]:
    """Return what a run needs with these options, and with other precisions and adapters.

    Args:
        config: configuration of the model.
        options: batch size and recomputation are those of the run.
        clip_s: length of the longest clip.
    """
    rank = options.lora_rank or 32
    modes = (
        replace(options, lora_rank=rank, precision="mixed"),
        replace(options, lora_rank=0, precision="bfloat16"),
        replace(options, lora_rank=0, precision="mixed"),
    )
    return [memory_need(config, mode, clip_s) for mode in modes]


def memory_need(config: ModelConfig, options: TrainOptions, clip_s: float) -> MemoryNeed:
    """Return what one run needs."""
    with building(torch.float32, torch.device("meta")):
        network = TrainingNetwork(config)
        if options.lora_rank:
            add_adapters(network, options.lora_rank, options.seed)
    adapters = _numbers(m for m in network.modules() if isinstance(m, LowRank))
    total = sum(parameter.numel() for parameter in network.parameters())
    activations = _activation_bytes(config, options, clip_s)
    if options.lora_rank:
        base_bytes = 4 if options.precision == "float32" else 2
        weights, training = (total - adapters) * base_bytes + adapters * 4, adapters * 12
        mode = f"LoRA of rank {options.lora_rank}, {options.precision}"
    else:
        weights, training = _full_bytes(total, options)
        mode = f"all weights, {options.precision}"
    return MemoryNeed(mode, weights / 1e9, training / 1e9, activations / 1e9)


def _numbers(adapters: Iterable[nn.Module]) -> int:
    return sum(a.down.numel() + a.up.numel() for a in adapters)  # type: ignore[operator,union-attr]


def _full_bytes(total: int, options: TrainOptions) -> tuple[int, int]:
    """Return the bytes of weights, and of gradients with AdamW's averages."""
    if options.precision == "bfloat16":
        return total * 2, total * 6
    copies = 2 if options.precision == "mixed" else 0  # what autocast keeps of each weight
    return total * (4 + copies), total * 12


def _activation_bytes(config: ModelConfig, options: TrainOptions, clip_s: float) -> float:
    talker = config.talker_config
    predictor = talker.code_predictor_config
    frames = options.batch_clips * clip_s / FRAME_S
    positions = frames + options.batch_clips * _PROMPT_POSITIONS
    books = talker.num_code_groups
    logits = positions * talker.vocab_size + frames * (books - 1) * predictor.vocab_size
    numbers = positions * _kept_numbers(talker, options.recompute)
    numbers += frames * books * _kept_numbers(predictor, options.recompute)
    return numbers * _ACTIVATION_BYTES + logits * _LOGIT_BYTES


def _kept_numbers(config: TransformerConfig, recomputes: bool) -> int:
    """Return the numbers kept per position: inside one layer or all, and between layers."""
    heads = (config.num_attention_heads + config.num_key_value_heads) * config.head_dim
    inside = 6 * config.hidden_size + 4 * heads + 4 * config.intermediate_size
    layers = config.num_hidden_layers
    return layers * config.hidden_size + inside * (1 if recomputes else layers)
