"""flash-attn, where it is used: a stand-in with its rules gets what its kernels require."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from testbed.linked_models import link_with_few_codebooks
from testbed.parity_reference import GREEDY, REFERENCE, all_cases
from voiceagent_tts.engine.device_choice import choose_attention
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.model import checkpoint as checkpoints
from voiceagent_tts.model.attention import (
    Attend,
    AttentionBackend,
    Keys,
    PagedKeys,
    attend_sdpa,
    make_attention,
)
from voiceagent_tts.model.checkpoint import load_checkpoint

NAME = "custom_voice-1b7"
GPU = torch.device("cuda")
PAGE_MULTIPLE = 256
"""Page sizes of flash-attn 2 are multiples of this."""


def with_kvcache(
    queries: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor | int,
    causal: bool,
    block_table: Tensor | None = None,
) -> Tensor:
    """Check arguments as `flash_attn_with_kvcache` of flash-attn 2.8 does, and attend."""
    rows, steps = queries.shape[:2]
    for tensor in (queries, k_cache, v_cache):
        assert tensor.dtype in (torch.float16, torch.bfloat16)
        assert tensor.dtype == queries.dtype
        assert tensor.stride(-1) == 1
    assert causal
    assert k_cache.shape == v_cache.shape
    assert queries.shape[2] % k_cache.shape[2] == 0
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((rows,), cache_seqlens, dtype=torch.int32)
    assert cache_seqlens.dtype == torch.int32
    assert cache_seqlens.is_contiguous()
    assert cache_seqlens.shape == (rows,)
    if block_table is None:
        assert len(k_cache) == rows
    else:
        assert block_table.dtype == torch.int32
        assert block_table.stride(-1) == 1
        assert len(block_table) == rows
        assert k_cache.shape[1] % PAGE_MULTIPLE == 0
        k_cache, v_cache = (pages[block_table.long()].flatten(1, 2) for pages in (k_cache, v_cache))
    last = cache_seqlens[:, None].long() - steps + torch.arange(steps)  # of each query
    hidden = torch.arange(k_cache.shape[1]) > last[:, :, None]
    mask = torch.zeros(hidden.shape, dtype=queries.dtype).masked_fill(hidden, float("-inf"))
    return attend_sdpa(queries, Keys(k_cache, v_cache, cache_seqlens, mask[:, None]))


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> Attend:
    """The attention of a machine with flash-attn and an Ampere GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    module = SimpleNamespace(flash_attn_with_kvcache=with_kvcache)
    monkeypatch.setitem(sys.modules, "flash_attn", module)  # type: ignore[arg-type]
    return make_attention("flash", torch.bfloat16)


def test_a_network_gives_flash_attn_what_it_requires(
    flash: Attend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts, steps and the passes of a frame attend to what PyTorch's attention sees."""
    calls: set[tuple[bool, int]] = set()

    def attend(queries: Tensor, seen: Keys | PagedKeys) -> Tensor:
        calls.add((isinstance(seen, PagedKeys), min(queries.shape[1], 3)))
        found, expected = flash(queries, seen), attend_sdpa(queries, seen)
        assert (found - expected).abs().max() <= 2**-7 * expected.abs().max()
        return found

    monkeypatch.setattr(checkpoints, "make_attention", lambda backend, dtype: attend)
    link_with_few_codebooks(REFERENCE / NAME, tmp_path / NAME)
    checkpoint = load_checkpoint(tmp_path / NAME, torch.bfloat16, backend="flash", is_packed=False)
    cases = [case for case in all_cases() if case.checkpoint == NAME][:2]
    requests = [Request(case.prompt(checkpoint), GREEDY, 3) for case in cases]
    assert all(len(codes) for codes in generate_codes(checkpoint.network, requests, 2, 512))
    assert calls == {(True, 3), (True, 1), (False, 2), (False, 1)}


@pytest.mark.parametrize(
    ("set_to", "kernels", "dtype", "chosen"),
    [
        (None, "plain", torch.bfloat16, "flash"),
        (None, "fused", torch.bfloat16, "sdpa"),
        (None, "plain", torch.float32, "sdpa"),
        ("sdpa", "plain", torch.bfloat16, "sdpa"),
    ],
)
def test_flash_attn_is_for_plain_kernels(
    flash: Attend,
    set_to: AttentionBackend | None,
    kernels: checkpoints.Kernels,
    dtype: torch.dtype,
    chosen: AttentionBackend,
) -> None:
    """On a GPU without Triton it is used where it is installed; fused kernels never call it."""
    options = Qwen3Options("none", attention=set_to)
    assert choose_attention(options, kernels, dtype, GPU) == chosen
