"""Fused operations compute the values of the plain operations, for all sizes and lengths.

Without a GPU they run in Triton's interpreter, and are compiled for GPUs that this machine lacks.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.linked_models import link_with_few_codebooks
from testbed.parity_reference import GREEDY, REFERENCE, all_cases
from testbed.random_weights import PUBLISHED
from testbed.triton_here import Resources, Where
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.model import kernels
from voiceagent_tts.model.attention import Attend, attend_sdpa
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.config import TalkerConfig, read_model_config
from voiceagent_tts.model.kernels import TOLERANCES, differences, find_fault, make_operations
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, PagedKVCache
from voiceagent_tts.model.layers import (
    HeadNorm,
    Kernels,
    Operations,
    inverse_frequencies,
    rotation,
)
from voiceagent_tts.model.sampling import Sampler, SamplingBounds

TINY = read_model_config(REFERENCE / "custom_voice-1b7").talker_config
CPU = torch.device("cpu")
FLOAT32, BFLOAT16, FLOAT16 = torch.float32, torch.bfloat16, torch.float16
THOROUGH = pytest.mark.thorough
COSTLY = (THOROUGH, pytest.mark.costly)
DTYPES = pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(FLOAT32, id="fp32", marks=THOROUGH),
        pytest.param(BFLOAT16, id="bf16"),
    ],
)
"""The types of the closest and the widest tolerance."""
pytestmark = pytest.mark.xdist_group("fused")  # one worker starts the interpreter
_FEW_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 2048}
FEW = replace(
    PUBLISHED.talker_config,
    code_predictor_config=replace(PUBLISHED.talker_config.code_predictor_config, **_FEW_HEADS),
    **_FEW_HEADS,
)
"""Published widths of every row, and the fewest heads and gates that still make several blocks."""
CONFIGS = {"few": FEW, "tiny": TINY, "full": PUBLISHED.talker_config}
PROMPT_ATTENTION = 10
"""Place of the kernel that attends for prompts among those that the comparison launches."""
TABLE = torch.tensor([[3, 1], [5, 2], [4, 6], [0, 0]])


def _differences(
    config: TalkerConfig, dtype: torch.dtype, device: torch.device
) -> list[tuple[str, float, float]]:
    return list(differences(config, dtype, device))


Found = Callable[[str, torch.dtype], list[tuple[str, float, float]]]


@pytest.fixture(scope="module")
def found_here(where: Where) -> Found:
    """Compare the operations where they run; each comparison is made once."""
    run, device = where

    @cache
    def found(config: str, dtype: torch.dtype) -> list[tuple[str, float, float]]:
        return run(_differences, CONFIGS[config], dtype, device)

    return found


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        pytest.param("few", BFLOAT16, id="few-bf16", marks=COSTLY),
        pytest.param("tiny", FLOAT32, id="tiny-fp32", marks=THOROUGH),
        pytest.param("tiny", BFLOAT16, id="tiny-bf16"),
        pytest.param("tiny", FLOAT16, id="tiny-fp16", marks=THOROUGH),
        pytest.param("full", BFLOAT16, id="full-bf16", marks=COSTLY),
    ],
)
@pytest.mark.timeout(900)  # the interpreter computes for a minute; much longer beside other work
def test_every_operation_is_the_plain_one(
    found_here: Found, config: str, dtype: torch.dtype
) -> None:
    found = found_here(config, dtype)
    assert len(found) == 5 * 7 + 2 + 2 * 3
    assert [one for one in found if not one[1] <= one[2]] == []


@pytest.mark.parametrize("config", [pytest.param("few", marks=COSTLY), "tiny"])
def test_rounding_is_where_the_plain_operations_round(
    where: Where, found_here: Found, config: str
) -> None:
    """Fused operations round where plain ones do: in bfloat16 the results are bit-identical.

    Results that depend on a square root are compared only where the roots are identical.
    """
    off = {name: difference for name, difference, _ in found_here(config, BFLOAT16)}
    same = [name for name in off if name.startswith(("sum", "values"))]
    assert len(same) == 10
    assert not any(off[name] for name in same)
    if where[1].type == "cpu":  # identical square roots
        assert {name for name, difference in off.items() if difference} <= {
            name
            for name in off
            if name.startswith("attention") or "of a row" in name or "many rows" in name
        }


def _attended(
    kind: Kernels,
    sizes: tuple[int, int, int],
    starts: list[int],
    steps: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attended values, then the keys and values of the cache, with zeros for NaN.

    Cache positions that belong to no row hold NaN, so that reading one is noticed.
    """
    queries, groups, width = sizes
    generator = torch.Generator().manual_seed(sum(sizes))

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    norm = HeadNorm(queries, groups, width, 1e-6).to(dtype)
    norm.weight.copy_(1 + draw(queries + groups, width) / 4)
    shape = (2, 7, PAGE_POSITIONS, groups, width)
    pool = KVPool(*(torch.full(shape, torch.nan, dtype=dtype) for _ in range(2)))
    for row, start in enumerate(starts):
        for held in (pool.keys, pool.values):
            for position in range(start):
                page = TABLE[row, position // PAGE_POSITIONS]
                held[1, page, position % PAGE_POSITIONS] = draw(groups, width)
    pool = KVPool(pool.keys.to(device), pool.values.to(device))
    positions = (torch.tensor(starts)[:, None] + torch.arange(steps)).to(device)
    heads = draw(len(starts), steps, queries + 2 * groups, width).to(device)
    rotated = rotation(positions, inverse_frequencies(width, 1e6).to(device), dtype)
    memory = PagedKVCache(pool, TABLE[: len(starts)].to(device), positions, 2 * PAGE_POSITIONS)
    operations = make_operations(kind, attend_sdpa)
    attended = operations.attend(heads, norm.to(device), rotated, memory, 1)
    keys, values = (held.float().cpu().nan_to_num() for held in (pool.keys, pool.values))
    return attended.float().cpu(), keys, values


@DTYPES
@pytest.mark.parametrize(
    ("sizes", "starts", "steps"),
    [
        ((4, 2, 16), [PAGE_POSITIONS - 1, PAGE_POSITIONS, 63, 0], 1),
        ((4, 2, 16), [PAGE_POSITIONS - 1, PAGE_POSITIONS, 1, 0], 2),
        ((3, 1, 24), [300, 17, 128, 0], 1),
        ((6, 2, 10), [31, 5, 400], 2),
        ((2, 2, 128), [290, 64], 1),
        ((8, 1, 64), [33], 2),
        ((4, 2, 16), [250, 3], 9),
        ((6, 2, 10), [0, 190], 70),
        ((3, 1, 24), [31, 256], 3),
    ],
    ids=[
        "page borders",
        "over a border",
        "three share",
        "odd width",
        "none share",
        "eight",
        "prompt over a border",
        "prompt of two blocks",
        "short prompt",
    ],
)
def test_attention_sees_what_it_should(
    where: Where, sizes: tuple[int, int, int], starts: list[int], steps: int, dtype: torch.dtype
) -> None:
    """Rows of any length, in pages in any order, attend and write to the cache as plain rows do."""
    run, device = where
    expected = _attended("plain", sizes, starts, steps, dtype, CPU)
    found = run(_attended, "fused", sizes, starts, steps, dtype, device)
    for one, other in zip(found, expected, strict=True):  # type: ignore[call-overload]
        bound = TOLERANCES[dtype] * other.abs().max()
        assert (one - other).abs().max() <= bound
    changed = (found[1] != expected[1]).flatten(2).any(-1)  # type: ignore[index]
    assert not changed[0].any()


def _codes(folder: Path, kind: Kernels, device: torch.device, frames: int) -> list[Tensor]:
    """Generate the codes of two texts of the reference together, with a tiny network in float32."""
    checkpoint = load_checkpoint(folder, device=device, kernels=kind, is_packed=False)
    cases = [case for case in all_cases() if case.checkpoint == folder.name][:2]
    requests = [Request(case.prompt(checkpoint), GREEDY, frames) for case in cases]
    return generate_codes(checkpoint.network, requests, rows=2, capacity=512)


@pytest.mark.timeout(900)  # the interpreter takes milliseconds for each program
@pytest.mark.parametrize("name", ["custom_voice-1b7", pytest.param("base-0b6", marks=THOROUGH)])
def test_a_network_chooses_the_same_codes(where: Where, tmp_path: Path, name: str) -> None:
    """In float32, prompts and frames of a whole fused network give the plain network's codes."""
    run, device = where
    folder = REFERENCE / name
    if name != "base-0b6":  # whose voices have codes of all codebooks
        link_with_few_codebooks(folder, tmp_path / name)
        folder = tmp_path / name
    frames = 2 if device.type == "cpu" else 24
    fused = run(_codes, folder, "fused", device, frames)
    plain = _codes(folder, "plain", device, frames)
    assert [codes.tolist() for codes in fused] == [codes.tolist() for codes in plain]  # type: ignore[attr-defined]


@pytest.mark.timeout(900)
@pytest.mark.thorough  # compiles for seconds; no CPU runs what it makes
@pytest.mark.parametrize("capability", [pytest.param(80, marks=pytest.mark.costly), 90])
@pytest.mark.parametrize(
    "dtype", [pytest.param(FLOAT32, id="fp32"), pytest.param(BFLOAT16, id="bf16")]
)
def test_kernels_fit_into_registers(
    compile_for: Callable[..., list[Resources]], capability: int, dtype: torch.dtype
) -> None:
    """At published sizes no kernel spills registers; a multiprocessor fits two programs of each."""
    found = compile_for(capability, _differences, PUBLISHED.talker_config, dtype, CPU)
    assert len(found) == 5 * 4 + 1 + 2 + 2 * 3
    assert max(one.spilled_bytes for one in found) == 0
    of_prompts = found.pop(PROMPT_ATTENTION)  # half as many threads as the others
    assert of_prompts.shared_bytes <= 49_152
    assert max(one.shared_bytes for one in found) <= 32_768
    if dtype is torch.bfloat16:  # other types run only in comparisons
        assert of_prompts.registers <= 255
        assert max(one.registers * one.threads for one in found) <= 32_768


class _Spoiled(Operations):
    """Plain operations with a wrong result in one row of the attention."""

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        attended = super().attend(*args, **kwargs)
        attended[3] *= 1.05
        return attended


class _SpoiledSampler(Sampler):
    def sample(self, *args: Any, **kwargs: Any) -> Tensor:
        codes = super().sample(*args, **kwargs)
        codes[5] += 1
        return codes


def test_the_kernel_check_finds_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(kind: Kernels, attend: Attend) -> Operations:
        return _Spoiled(attend)

    def spoil_sampler(kind: Kernels, bounds: SamplingBounds) -> Sampler:
        return (Sampler if kind == "plain" else _SpoiledSampler)(bounds)

    monkeypatch.setattr(kernels, "make_operations", spoil)
    monkeypatch.setattr(kernels, "make_sampler", spoil_sampler)
    found = _differences(TINY, torch.bfloat16, CPU)
    off = [name for name, difference, bound in found if not difference <= bound]
    assert off == [
        *(
            f"attention of a {name}"
            for name in ("step", "step of many rows", "prompt", "frame's start", "frame")
        ),
        *(f"codes of {name}" for name in ("codebook 0", "the others")),
    ]


def test_the_kernel_check_reports_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_fault(TINY, torch.float32, CPU) == "cpu is not an NVIDIA GPU"

    def break_down(*arguments: object) -> Operations:
        raise RuntimeError("Failed to find C compiler.\nAnd more.")

    monkeypatch.setattr(kernels, "make_operations", break_down)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fault = find_fault(TINY, torch.float32, torch.device("cuda"))
    assert fault == "RuntimeError: Failed to find C compiler."
