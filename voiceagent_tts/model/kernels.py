"""Which kernels compute what lies between a network's matrices: PyTorch's, or fused ones.

Fused ones need Triton, which is loaded where they are asked for and nowhere else, and an NVIDIA GPU
of which a look tells whether they compute there what plain ones do. Knows no checkpoint.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from voiceagent_tts.model.code_predictor import FrameBuffers, FrameKVCache, predictor_dtype
from voiceagent_tts.model.config import TalkerConfig, TransformerConfig
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, PagedKVCache
from voiceagent_tts.model.layers import (
    Attend,
    HeadNorm,
    Kernels,
    KVCache,
    Operations,
    PlainOperations,
    RMSNorm,
    attend_sdpa,
    inverse_frequencies,
    rotation,
)
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    Sampler,
    SamplingBounds,
    SamplingSettings,
    TorchSampler,
)

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""How far fused results may be from plain ones, as a share of a row's largest number: sums in
another order, and two steps of the precision."""

_STARTS = (0, PAGE_POSITIONS - 1, PAGE_POSITIONS, 2 * PAGE_POSITIONS + 37)
_TABLE = ((4, 1, 7), (2, 9, 0), (8, 3, 0), (6, 5, 10))
"""Positions and pages of some rows: at the borders of pages, and in no order."""
_PAGES = 1 + max(map(max, _TABLE))
_CHOICES = 16
"""Codes that are chosen: few enough that no random number lies at the border of two codes."""

Draw = Callable[..., Tensor]
"""Random numbers of a shape; the same in every run."""


def make_operations(kernels: Kernels, attend: Attend) -> Operations:
    """The operations of a network's layers.

    Args:
        kernels: fused ones only where `find_fault` finds none.
        attend: how attention is computed where no fused kernel does it.
    """
    plain = PlainOperations(attend)
    if kernels == "plain":
        return plain
    from voiceagent_tts.model.fused import FusedOperations  # Triton is not everywhere

    return FusedOperations(plain)


def make_sampler(kernels: Kernels, bounds: SamplingBounds) -> Sampler:
    """What chooses codes: fused kernels have no top-p, and leave rows that may have one to others.

    Args:
        kernels: as of `make_operations`.
        bounds: what rows may ask for.
    """
    if kernels == "plain" or bounds.has_top_p:
        return TorchSampler(bounds)
    from voiceagent_tts.model.fused_sampler import FusedSampler  # Triton is not everywhere

    return FusedSampler(bounds)


def find_fault(config: TalkerConfig, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why a model cannot have fused kernels on this device; None where it can.

    Compiles them, and compares what they compute of some random numbers with what plain ones do.
    """
    if device.type != "cuda" or torch.version.cuda is None:
        return f"{device} is no NVIDIA GPU"
    try:
        for name, difference, bound in differences(config, dtype, device):
            if not difference <= bound:
                return f"{name}: {difference:.2g} away from plain kernels, {bound:.2g} at most"
    except Exception as error:  # of an import, a compiler, a driver: whichever fails
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None


def differences(
    config: TalkerConfig, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, float, float]]:
    """How far fused kernels on a device are from plain ones on the CPU.

    Args:
        config: its sizes are those of the kernels that are compared.
        dtype: of the talker.
        device: a GPU; the CPU where Triton interprets.

    Returns:
        For each result of the talker's operations and of the code predictor's its name, the largest
        difference, as a share of the largest number of its row or page, and the bound; for codes
        the share that is not the same.
    """
    fused = make_operations("fused", attend_sdpa)
    of_predictor = predictor_dtype(dtype)
    frame = range(config.num_code_groups)
    for name, part, of_part, memory in (
        ("step", config, dtype, _of_rows),
        ("frame's start", config.code_predictor_config, of_predictor, _of_frame(frame[:2])),
        ("frame", config.code_predictor_config, of_predictor, _of_frame(frame[3:4])),
    ):
        plain = PlainOperations(attend_sdpa)
        expected = _results(plain, part, memory, of_part, torch.device("cpu"))
        found = _results(fused, part, memory, of_part, device)
        for result, numbers in expected.items():
            off = (found[result] - numbers).abs().flatten(1).amax(1)
            share = off / numbers.abs().flatten(1).amax(1)
            yield f"{result} of a {name}", float(share.max()), TOLERANCES[of_part]
    for name, size, of_part, has_rules in (
        ("codebook 0", config.vocab_size, dtype, True),
        ("the others", config.code_predictor_config.vocab_size, of_predictor, False),
    ):
        on_cpu = _codes("plain", size, of_part, torch.device("cpu"), has_rules=has_rules)
        chosen = _codes("fused", size, of_part, device, has_rules=has_rules)
        yield f"codes of {name}", float((chosen != on_cpu).float().mean()), 0.0


@torch.inference_mode()
def _codes(
    kernels: Kernels,
    size: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    has_rules: bool,
) -> Tensor:
    """What is chosen of random logits, on the CPU: [R] int64, of rows sampled and not."""
    generator = torch.Generator().manual_seed(0)
    settings = SamplingSettings(top_k=min(50, size))
    logits = (4 * torch.randn(_CHOICES, size, generator=generator)).to(device, dtype)
    uniform = torch.rand(_CHOICES, generator=generator).to(device)
    numbers = torch.arange(_CHOICES, device=device)[:, None]
    row_settings = RowSettings(
        is_sampled=numbers > 0,
        temperature=torch.full((_CHOICES, 1), settings.temperature, device=device),
        top_k=torch.full_like(numbers, settings.top_k),
        top_p=torch.ones(_CHOICES, 1, device=device),
    )
    ids = torch.arange(size, device=device)
    rules = LogitRules(
        seen=(ids + numbers) % 3 == 0,
        penalty=torch.full((_CHOICES, 1), 1.05, device=device),
        may_end=numbers % 2,
        is_control=ids > size // 2,
        is_end=ids == size // 3,
    )
    sampler = make_sampler(kernels, SamplingBounds.of([settings]))
    return sampler.sample(logits, uniform, row_settings, rules if has_rules else None).cpu()


def _of_rows(config: TransformerConfig, draw: Draw) -> tuple[KVCache, Tensor]:
    """Memory of a step, and positions [B, 1]."""
    shape = (1, _PAGES, PAGE_POSITIONS, config.num_key_value_heads, config.head_dim)
    pool = KVPool(draw(*shape), draw(*shape))
    table, positions = (torch.tensor(of, device=pool.keys.device) for of in (_TABLE, _STARTS))
    window = len(_TABLE[0]) * PAGE_POSITIONS
    return PagedKVCache(pool, table, positions[:, None], window), positions[:, None]


def _of_frame(place: range) -> Callable[[TransformerConfig, Draw], tuple[KVCache, Tensor]]:
    """The same of some of a frame's positions; [1, T]."""

    def make(config: TransformerConfig, draw: Draw) -> tuple[KVCache, Tensor]:
        heads = (config.num_key_value_heads, config.head_dim)
        shape = (1, len(_STARTS), config.num_code_groups, *heads)  # type: ignore[attr-defined]
        cache = FrameBuffers.of(draw(*shape), draw(*shape))
        part = slice(place.start, place.stop)
        return FrameKVCache(cache, part), cache.positions[:, part]

    return make


@torch.inference_mode()
def _results(
    operations: Operations,
    config: TransformerConfig,
    memory_of: Callable[[TransformerConfig, Draw], tuple[KVCache, Tensor]],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    """What the operations of a layer make of random numbers, on the CPU in float32."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    memory, positions = memory_of(config, draw)
    rows, steps, width = len(_STARTS), positions.shape[1], config.head_dim
    queries, groups = config.num_attention_heads, config.num_key_value_heads
    norm = RMSNorm(config.hidden_size, config.rms_norm_eps).to(device, dtype)
    head_norm = HeadNorm(queries, groups, width, config.rms_norm_eps).to(device, dtype)
    for weight in (norm.weight, head_norm.weight):
        weight.copy_(1 + draw(*weight.shape) / 8)
    frequencies = inverse_frequencies(width, config.rope_theta).to(device)
    rotated = rotation(positions, frequencies, dtype)
    x, added = (draw(rows, steps, config.hidden_size) for _ in range(2))
    total, normed = operations.add_norm(x, added, norm)
    heads = draw(rows, steps, queries + 2 * groups, width)
    attended = operations.attend(heads, head_norm, rotated, memory, 0)
    pages = memory.pages(0)
    results = {
        "sum": total,
        "norm of a sum": normed,
        "norm": operations.add_norm(x, None, norm)[1],
        "attention": attended,
        "keys": pages.keys,
        "values": pages.values,
        "gate": operations.gate(draw(rows, steps, 2 * config.intermediate_size)),
    }
    return {name: result.float().cpu() for name, result in results.items()}
