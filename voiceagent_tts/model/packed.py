"""Linear layers with weights rearranged for the vector unit of a CPU.

PyTorch's default library for float32 products uses half the vector width of some CPUs and
rearranges the weights in every call. Weights packed once for oneDNN avoid both. Without a oneDNN
kernel for this machine, layers stay unchanged. Knows no network.

Source: PyTorch's `mkldnn` operators, which `torch.compile` uses for frozen weights.
"""

import torch
from torch import Tensor, nn

from voiceagent_tts.model.layers import Linear

_TYPICAL_ROWS = 32
"""Rows of input to pack for: within 10 % of the best speed from 4 to 50,000 rows."""


class PackedLinear(nn.Module):
    """A `Linear` with an opaque packed weight, which can be neither read nor moved.

    Args:
        linear: layer to replace; not needed afterwards.
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
    """Replace every `Linear` below `module` by its packed form, if this machine supports it.

    Call this last: a packed module can be neither loaded nor moved.
    """
    parents = [parent for parent in module.modules() if not isinstance(parent, Linear)]
    for parent in parents:  # one at a time, to free the plain weights early
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
