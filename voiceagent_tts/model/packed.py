"""Linear layers whose weights lie as the processor's vector unit reads them.

PyTorch hands float32 products to a library that leaves half of some processors' vector width
unused, and rearranges the weights in every call; packed once for oneDNN they are neither. Where
this machine has no such kernel, layers stay as they are. Knows no network.

Source: PyTorch's `mkldnn` operators, which `torch.compile` uses for frozen weights.
"""

import torch
from torch import Tensor, nn

from voiceagent_tts.model.layers import Linear

_TYPICAL_ROWS = 32
"""Packing for this many rows of input is within a tenth of the best from 4 to 50,000 rows."""


class PackedLinear(nn.Module):
    """A `Linear` that can only compute: its weight has no shape that could be read or moved.

    Args:
        linear: what it computes; not needed any more afterwards.
    """

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")


def pack(module: nn.Module) -> None:
    """Replace every `Linear` below `module` by its packed form, where this machine can.

    Call it last: a packed module can be neither loaded nor moved.
    """
    parents = [parent for parent in module.modules() if not isinstance(parent, Linear)]
    for parent in parents:  # one after the other: each lets its plain weights go
        for name, child in list(parent.named_children()):
            if isinstance(child, Linear) and _can_pack(child.weight):
                setattr(parent, name, PackedLinear(child))


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32
