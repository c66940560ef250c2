"""Layers round where the official ones do, and attention sees exactly the permitted positions."""

import pytest
import torch

from voiceagent_tts.model.layers import RMSNorm, inverse_frequencies, rotation

HEADS, GROUPS, WIDTH = 8, 2, 16


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers that are equal in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def make_norm(dtype: torch.dtype) -> RMSNorm:
    """A norm whose weights are not one."""
    norm = RMSNorm(64, 1e-6).to(dtype)
    norm.weight.copy_(1 + random(64) / 4)
    return norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_norm_rounds_before_its_weight(dtype: torch.dtype) -> None:
    """In half precision the norm is computed in float32, rounded, and then weighted."""
    norm, x = make_norm(dtype), random(200, 64, dtype=dtype) * 3
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    expected = norm.weight * normed.to(dtype)
    assert torch.equal(norm(x), expected)
    assert not torch.equal(norm(x), (norm.weight.float() * normed).to(dtype))


def test_angles_are_rounded_before_the_rotation() -> None:
    """In bfloat16 the angles are computed in float32 and rounded before the rotation."""
    positions = torch.tensor([[0, 1, 977, 4095]])
    frequencies = inverse_frequencies(WIDTH, 1e6)
    rotated = rotation(positions, frequencies, torch.bfloat16)
    angles = positions[..., None].double() * frequencies.double()
    expected = torch.cat((angles, angles), -1).cos().bfloat16()[:, :, None]
    torch.testing.assert_close(rotated.cos, expected, rtol=0, atol=2**-8)
    assert rotated.cos.dtype == rotated.sin.dtype == torch.bfloat16
    x = random(1, 4, HEADS, WIDTH, dtype=torch.bfloat16)
    turned = torch.cat((-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]), -1)
    sin = torch.cat((angles, angles), -1).sin().float().bfloat16()[:, :, None]
    torch.testing.assert_close(rotated.sin[..., WIDTH // 2 :], sin[..., WIDTH // 2 :])
    sin = rotated.sin[..., WIDTH // 2 :].repeat(1, 1, 1, 2)
    assert torch.equal(rotated.apply(x), x * rotated.cos + turned * sin)
