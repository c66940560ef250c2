"""Every kernel computes what the plain product computes, within its bound."""

from typing import get_args

import pytest
import torch
from torch import Tensor

from voiceagent_tts.model import products
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.products import (
    BOUNDS,
    Kernel,
    are_float16,
    fits,
    make,
    pack,
    works,
)

ROWS = [(1,), (3,), (2, 40), (7, 1, 5), (1000,)]


def linear(inputs: int, outputs: int, bias: bool, dtype: torch.dtype) -> Linear:
    generator = torch.Generator().manual_seed(inputs + outputs)
    layer = Linear(inputs, outputs, bias)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / inputs**0.5)
    return layer.to(dtype)


def error_of(kernel: Kernel, layer: Linear, x: Tensor) -> float:
    made, expected = make(kernel, layer)(x), layer(x)
    assert made.shape == expected.shape
    assert made.dtype == expected.dtype
    return float((made - expected).norm() / expected.norm())


@pytest.mark.parametrize("kernel", get_args(Kernel))
@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize(
    ("inputs", "outputs", "bias"), [(96, 144, True), (100, 130, False), (1024, 64, False)]
)
def test_a_kernel_is_its_plain_twin(
    kernel: Kernel, rows: tuple[int, ...], inputs: int, outputs: int, bias: bool
) -> None:
    if not works(kernel, torch.float32) or not fits(kernel, inputs):
        assert kernel != "plain"
        return
    x = torch.randn(*rows, inputs, generator=torch.Generator().manual_seed(1))
    assert error_of(kernel, linear(inputs, outputs, bias, torch.float32), x) <= BOUNDS[kernel]


def test_weights_stored_in_bfloat16_are_float16() -> None:
    """They lose nothing as float16, so products are as exact as packed ones; others do lose."""
    exact = linear(1024, 64, True, torch.float32)
    assert not are_float16(exact.weight)
    exact.weight.copy_(exact.weight.bfloat16())
    assert are_float16(exact.weight)
    if works("float16-weights", torch.float32):
        x = torch.randn(5, 1024, generator=torch.Generator().manual_seed(1))
        assert error_of("float16-weights", exact, x) <= BOUNDS["packed"]
    exact.weight[0, 0] = -(2.0**17)
    assert not are_float16(exact.weight)  # overflows


def test_weights_of_eight_bits_need_whole_groups() -> None:
    """With other inputs than a multiple of 32, PyTorch's kernel would end the process."""
    assert all(fits("int8-weights", inputs) for inputs in (32, 1024))
    assert not any(fits("int8-weights", inputs) for inputs in (48, 100))
    others: list[Kernel] = ["plain", "packed", "float16-weights", "int8"]
    assert all(fits(kernel, 100) for kernel in others)


@pytest.mark.parametrize("kernel", ["int8", "int8-weights"])
def test_rows_of_a_batch_do_not_influence_each_other(kernel: Kernel) -> None:
    """A row beside one that is a thousand times louder, or silent, is computed as precisely."""
    if not works(kernel, torch.float32):
        return
    layer = linear(128, 64, True, torch.float32)
    x = torch.randn(4, 128, generator=torch.Generator().manual_seed(2))
    beside = x * torch.tensor([1.0, 1000.0, 0.0, 1e-4])[:, None]
    made = make(kernel, layer)
    assert torch.equal(made(beside)[:1], made(x)[:1])
    for row in range(4):
        found, expected = made(beside)[row] - layer.bias, layer(beside)[row] - layer.bias
        assert (found - expected).norm() <= BOUNDS[kernel] * expected.norm() + 1e-6


def test_eight_bits_do_not_overflow() -> None:
    """The largest inputs and weights, all of one sign, have an exact sum."""
    if not works("int8", torch.float32):
        return
    layer = linear(512, 32, False, torch.float32)
    layer.weight.fill_(1.0)
    made = make("int8", layer)
    for rows in (1, 3):
        assert (made(torch.ones(rows, 512)) - 512).abs().max() < 512 * BOUNDS["int8"]


def test_a_kernel_that_fails_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(linear: Linear) -> torch.nn.Module:
        raise RuntimeError("no such operator")

    def wrong(layer: Linear) -> torch.nn.Module:
        silent = Linear(*layer.weight.shape[::-1])  # type: ignore[arg-type]
        silent.weight.zero_()
        return silent

    for broken in (missing, wrong):
        makers = {**products._MAKERS, "int8": broken}
        monkeypatch.setattr(products, "_MAKERS", makers)
        assert not works.__wrapped__("int8", torch.float32)


def test_half_precision_is_packed_too() -> None:
    """In bfloat16, packed or not, the products equal those of float32 up to bfloat16 rounding."""
    module = torch.nn.Sequential(linear(96, 130, True, torch.bfloat16))
    x = torch.randn(9, 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = linear(96, 130, True, torch.float32)(x.float())
    pack(module)
    assert (module(x).float() - expected).abs().max() < 0.05
