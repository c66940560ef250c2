"""Low-rank adapters: trains two small matrices beside each frozen projection of the layers.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021).
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.plugins.training.network import Layer, TrainingNetwork

_SCALE = 2.0
"""Alpha over rank. The product keeps its size whatever the rank."""


class LowRank(nn.Module):
    """A frozen projection plus a trained product of two narrow matrices, zero at first.

    Args:
        base: the projection.
        rank: inner width of the product.
        generator: source of the first values, on the CPU.
    """

    def __init__(self, base: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.base = base
        bound = 1 / math.sqrt(base.in_features)
        down = torch.empty(rank, base.in_features).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down.to(base.weight.device))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=base.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return self.base(x) + _SCALE * F.linear(F.linear(x, self.down), self.up)

    def merged(self) -> Tensor:
        """Return the weight of one projection that computes the same."""
        weight = self.base.weight
        return (weight.float() + _SCALE * self.up @ self.down).to(weight.dtype)


def add_adapters(network: TrainingNetwork, rank: int, seed: int) -> None:
    """Freeze a network, and add trained adapters to every projection of its layers.

    Args:
        network: changed in place.
        rank: inner width of the adapters.
        seed: equal seeds give equal first values.
    """
    network.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for layer in [module for module in network.modules() if isinstance(module, Layer)]:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(part, name, LowRank(child, rank, generator))


@torch.no_grad()
def merged_weights(network: TrainingNetwork) -> Iterator[tuple[str, Tensor]]:
    """Yield the network's weights under the checkpoint's names, with adapters merged."""
    modules = network.named_modules()
    adapters = {name: module for name, module in modules if isinstance(module, LowRank)}
    for name, parameter in network.named_parameters():
        owner, _, part = name.rpartition(".")
        projection = owner.removesuffix(".base")
        if owner in adapters:
            continue
        if projection in adapters:
            yield f"{projection}.{part}", adapters[projection].merged()
        else:
            yield name, parameter
