"""Layers round where the official ones do, and attention sees exactly the permitted positions."""

import pytest
import torch

from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.attention import Keys, attend_sdpa, make_attention
from voiceagent_tts.model.layers import HeadNorm, RMSNorm, inverse_frequencies, rotation

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


def test_a_norm_in_float32_is_the_formula() -> None:
    """In float32 the one-call norm equals the formula."""
    norm, x = make_norm(torch.float32), random(200, 64) * 3
    expected = norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    torch.testing.assert_close(norm(x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_heads_are_normed_as_by_two_norms(dtype: torch.dtype) -> None:
    """One call norms queries and keys as two separate norms do."""
    both = HeadNorm(HEADS, GROUPS, WIDTH, 1e-6).to(dtype)
    apart = [RMSNorm(WIDTH, 1e-6).to(dtype) for _ in range(2)]
    for (_, weight), norm, seed in zip(both.weights("name"), apart, (3, 4), strict=True):
        norm.weight.copy_(random(seed, WIDTH)[0])
        weight.copy_(norm.weight)
    x = random(2, 5, HEADS + GROUPS, WIDTH, dtype=dtype) * 3
    expected = torch.cat((apart[0](x[:, :, :HEADS]), apart[1](x[:, :, HEADS:])), dim=2)
    torch.testing.assert_close(
        both(x), expected, rtol=1e-6 if dtype == torch.float32 else 0, atol=0
    )


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


def by_hand(queries: torch.Tensor, seen: Keys, allowed: torch.Tensor) -> torch.Tensor:
    """Compute attention in plain steps; `allowed` [B, T, S] bool."""
    share = queries.shape[2] // seen.keys.shape[2]
    keys = seen.keys.repeat_interleave(share, dim=2)
    values = seen.values.repeat_interleave(share, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", queries, keys) / queries.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed[:, None], float("-inf")).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", weights, values)


def test_a_step_sees_its_row_s_positions() -> None:
    """One query per row sees the positions that the mask allows; heads of a group share keys."""
    seen = Keys(random(3, 11, GROUPS, WIDTH), random(3, 11, GROUPS, WIDTH), 11)
    allowed = torch.arange(11) <= torch.tensor([0, 4, 10])[:, None]
    mask = torch.zeros(3, 11).masked_fill(~allowed, float("-inf"))[:, None, None]
    queries = random(3, 1, HEADS, WIDTH)
    masked = Keys(seen.keys, seen.values, 11, mask)
    torch.testing.assert_close(
        attend_sdpa(queries, masked), by_hand(queries, seen, allowed[:, None])
    )


def test_a_prefill_sees_what_came_before() -> None:
    """Without a mask each query sees the positions up to its own."""
    seen = Keys(random(2, 7, GROUPS, WIDTH), random(2, 7, GROUPS, WIDTH), 7)
    queries = random(2, 7, HEADS, WIDTH)
    allowed = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, 7, 7)
    torch.testing.assert_close(attend_sdpa(queries, seen), by_hand(queries, seen, allowed))


def test_flash_attention_is_refused_in_float32() -> None:
    """flash-attn has no float32 kernels; the error names an alternative."""
    with pytest.raises(VoiceAgentError, match=r"bfloat16 or float16, got torch.float32; try sdpa"):
        make_attention("flash", torch.float32)
