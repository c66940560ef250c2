"""The product of a single row equals PyTorch's.

Without a GPU it runs in Triton's interpreter, and is compiled for GPUs that this machine lacks.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from testbed.triton_here import Resources, Where
from voiceagent_tts.model.attention import attend_sdpa
from voiceagent_tts.model.kernels import TOLERANCES, make_operations
from voiceagent_tts.model.layers import Kernels, Linear

CPU = torch.device("cpu")
FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
WIDTHS = (1024, 2048, 3072, 6144)
"""Inputs of the products of the 1.7B model."""
pytestmark = pytest.mark.xdist_group("fused")  # one worker starts the interpreter


@torch.inference_mode()
def _product(
    kind: Kernels, shape: tuple[int, ...], outputs: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Multiply random numbers, which are not contiguous."""
    generator = torch.Generator().manual_seed(len(shape) + outputs)
    linear = Linear(shape[-1], outputs).to(device, dtype)
    weight = torch.randn(outputs, shape[-1], generator=generator) / shape[-1] ** 0.5
    linear.weight.copy_(weight)
    x = torch.randn(*shape[:-1], 2 * shape[-1], generator=generator).to(device, dtype)[..., ::2]
    return make_operations(kind, attend_sdpa).product(x, linear).float().cpu()


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("shape", "outputs"),
    [((1, 1, 64), 16), ((1, 130), 33), ((1, 1, 200), 3), ((3, 1, 64), 24)],
    ids=["one row", "odd outputs", "few outputs", "several rows"],
)
def test_any_shape_is_the_plain_one(
    where: Where, shape: tuple[int, ...], outputs: int, dtype: torch.dtype
) -> None:
    """Any number of inputs and outputs gives the plain result."""
    run, device = where
    expected = _product("plain", shape, outputs, dtype, CPU)
    found: Tensor = run(_product, "fused", shape, outputs, dtype, device)  # type: ignore[assignment]
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= TOLERANCES[dtype] * expected.abs().max()


def _published_products() -> None:
    for width in WIDTHS:
        _product("fused", (1, 1, width), 4096, BFLOAT16, CPU)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_fit_into_registers(
    compile_for: Callable[..., list[Resources]], capability: int
) -> None:
    """At published sizes in bfloat16 no kernel spills registers."""
    found = compile_for(capability, _published_products)
    assert len(found) == len(WIDTHS)
    assert max(one.spilled_bytes for one in found) == 0
    assert max(one.registers for one in found) <= 255
