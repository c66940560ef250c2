"""Packed weights compute what plain weights compute."""

import weakref

import pytest
import torch
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.packed import PackedLinear, pack

ROWS = [(1,), (3,), (2, 40), (7, 1, 5), (1000,)]


def linear(inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> Linear:
    """A layer with random weights."""
    generator = torch.Generator().manual_seed(inputs + outputs)
    layer = Linear(inputs, outputs, bias)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / inputs**0.5)
    return layer.to(dtype)


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_packed_layer_is_its_plain_twin(rows: tuple[int, ...], has_bias: bool) -> None:
    """For any input shape the products are equal up to rounding."""
    layer = linear(96, 130, has_bias, torch.float32)
    x = torch.randn(*rows, 96, generator=torch.Generator().manual_seed(1))
    packed = PackedLinear(layer)(x)
    assert packed.shape == (*rows, 130)
    assert (packed - layer(x)).abs().max() < 1e-5


def test_half_precision_is_packed_too() -> None:
    """In bfloat16, packed or not, the products equal those of float32 up to bfloat16 rounding."""
    module = torch.nn.Sequential(linear(96, 130, True, torch.bfloat16))
    x = torch.randn(9, 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = linear(96, 130, True, torch.float32)(x.float())
    pack(module)
    assert (module(x).float() - expected).abs().max() < 0.05


def test_packing_keeps_no_plain_weights() -> None:
    """Every layer is replaced, and the plain weights are freed."""
    module = torch.nn.Sequential(
        torch.nn.Sequential(linear(8, 8, True, torch.float32)), linear(8, 8, False, torch.float32)
    )
    plain = [weakref.ref(layer) for layer in module.modules() if isinstance(layer, Linear)]
    pack(module)
    assert len(plain) == 2
    assert not any(layer() for layer in plain)
    assert [type(layer) for layer in module.modules() if not list(layer.children())] == [
        PackedLinear,
        PackedLinear,
    ]


def test_other_precisions_stay_plain() -> None:
    """Layers that no kernel can pack stay unchanged."""
    module = torch.nn.Sequential(linear(8, 8, True, torch.float64))
    pack(module)
    assert isinstance(module[0], Linear)


def test_a_packed_codec_makes_the_same_samples() -> None:
    """A codec with packed weights makes the samples of one with plain weights."""
    codes = torch.randint(64, (20, 16), generator=torch.Generator().manual_seed(1))
    made: list[Tensor] = [
        load_codec(REFERENCE / "base-0b6", is_packed=is_packed).decode(codes)
        for is_packed in (False, True)
    ]
    assert made[0].std() > 0.01
    assert (made[0] - made[1]).abs().max() < 1e-4
