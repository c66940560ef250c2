"""Select the kernels between a network's matrix products: PyTorch's or fused ones.

Fused kernels need Triton, which is imported only when they are selected, and an NVIDIA GPU.
`find_fault` and `fuse_codec` run them on the device and compare their results with PyTorch's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from voiceagent_tts.model.attention import Attend, KVCache, attend_sdpa
from voiceagent_tts.model.code_predictor import FrameBuffers, FrameKVCache, predictor_dtype
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import TalkerConfig, TransformerConfig
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, KVPool, PagedKVCache
from voiceagent_tts.model.layers import (
    HeadNorm,
    Kernels,
    Linear,
    Operations,
    RMSNorm,
    inverse_frequencies,
    rotation,
)
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    Sampler,
    SamplingBounds,
    SamplingSettings,
)

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Maximum difference of fused from plain results, relative to the largest number of a row: sums in
another order, and two rounding steps of the dtype."""

_STARTS = (0, PAGE_POSITIONS - 1, PAGE_POSITIONS, 2 * PAGE_POSITIONS + 37)
_TABLE = ((4, 1, 7), (2, 9, 0), (8, 3, 0), (6, 5, 10))
"""Start positions and block tables of the test rows: at page borders, with pages out of order."""
_MANY = range(40)
_MANY_STARTS = tuple(37 * row % PAGE_POSITIONS for row in _MANY)
_MANY_TABLE = tuple((len(_MANY) - row,) for row in _MANY)
"""The same of rows that fill a GPU: a page each, so that they take little memory."""
_PROMPT_STEPS = 40
"""Positions of the test prompts: more than one block of queries, and not a whole number of them."""
_CHOICES = 16
"""Sampled codes: few enough that no random number lies at the border between two codes."""

_CODEC_TOLERANCE = 5e-4
"""Maximum difference of the codec's samples, relative to the largest. Sums in another order make
5e-7; rounding to TF32, which the comparison forbids, 2e-4; one percent of an activation 1e-3."""

_CPU = torch.device("cpu")

Draw = Callable[..., Tensor]
"""Function from a shape to random numbers, equal in every run."""


def make_operations(kernels: Kernels, attend: Attend) -> Operations:
    """Return the operations of a network's layers.

    Args:
        kernels: other than `plain` only if `find_fault` returns None.
        attend: attention function of plain operations.
    """
    if kernels == "plain":
        return Operations(attend)
    from voiceagent_tts.model.fused import FusedOperations  # Triton is optional

    return FusedOperations()


def make_sampler(kernels: Kernels, bounds: SamplingBounds) -> Sampler:
    """Return the sampler for these bounds; with top-p always PyTorch's."""
    if kernels == "plain" or bounds.has_top_p:
        return Sampler(bounds)
    from voiceagent_tts.model.fused_sampler import FusedSampler  # Triton is optional

    return FusedSampler(bounds)


def find_fault(config: TalkerConfig, dtype: torch.dtype, device: torch.device) -> str | None:
    """Return why a model cannot use fused kernels on this device, or None if it can.

    Compiles the kernels and compares their results on random numbers with those of plain ones.
    """
    return _first_fault(device, differences(config, dtype, device))


def fuse_codec(decoder: CodecDecoder, max_frames: int) -> str | None:
    """Fuse a loaded decoder, and return why it must not be used, or None if it may.

    Compares its samples with those that it made before, with the weights, which are not packed, and
    sizes that are served: rows have a state for calls of `max_frames`.
    """

    def compare() -> Iterator[tuple[str, float, float]]:
        yield "codec", codec_difference(decoder, max_frames), _CODEC_TOLERANCE

    return _first_fault(decoder.device, compare())


def _first_fault(device: torch.device, found: Iterator[tuple[str, float, float]]) -> str | None:
    if device.type != "cuda" or torch.version.cuda is None:
        return f"{device} is not an NVIDIA GPU"
    try:
        for name, difference, bound in found:
            if not difference <= bound:
                return f"{name}: {difference:.2g} from plain kernels, expected at most {bound:.2g}"
    except Exception as error:  # an import, the compiler or the driver may fail
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None


@torch.inference_mode()
def codec_difference(decoder: CodecDecoder, max_frames: int) -> float:
    """Fuse a decoder, and return the largest difference of its samples from those before.

    Relative to the largest sample. Several calls of two rows and one frame, so that the state
    between them is compared, too.
    """
    with _without_tf32():  # products of other shapes round elsewhere, which would hide a fault
        expected = _samples(decoder, max_frames)
        decoder.fuse()
        found = _samples(decoder, max_frames)
    return float((found - expected).abs().max() / expected.abs().max())


def _samples(decoder: CodecDecoder, max_frames: int) -> Tensor:
    generator, config = torch.Generator().manual_seed(0), decoder.config
    state, shape = decoder.new_state(3, max_frames), (2, config.num_quantizers, 1)
    samples = list[Tensor]()
    for rows in ([2, 0], [0, 1], [0, 2]):
        codes = torch.randint(config.codebook_size, shape, generator=generator)
        places = torch.tensor(rows, device=decoder.device)
        samples.append(decoder.decode(codes.to(decoder.device), state, places).clone())
    return torch.cat(samples)


@contextmanager
def _without_tf32() -> Iterator[None]:
    cudnn: Any = torch.backends.cudnn  # its stubs lack this interface
    backends = torch.backends.cuda.matmul, cudnn.conv
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


def differences(
    config: TalkerConfig, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, float, float]]:
    """Compare fused kernels on a device with plain kernels on the CPU, for a talker in `dtype`.

    The device is a GPU, or the CPU with Triton's interpreter.

    Yields:
        For each result of the talker and of the code predictor: its name, the largest difference
        relative to the largest number of its row or page, and the tolerance. For sampled codes: the
        fraction that differs.
    """
    fused = make_operations("fused", attend_sdpa)
    predictor_type = predictor_dtype(dtype)
    frame = range(config.num_code_groups)
    for name, part, part_type, make_cache in (
        ("step", config, dtype, _paged_cache(1)),
        ("step of many rows", config, dtype, _paged_cache(1, _MANY_STARTS, _MANY_TABLE)),
        ("prompt", config, dtype, _paged_cache(_PROMPT_STEPS)),
        ("frame's start", config.code_predictor_config, predictor_type, _frame_cache(frame[:2])),
        ("frame", config.code_predictor_config, predictor_type, _frame_cache(frame[3:4])),
    ):
        expected = _results(Operations(), part, make_cache, part_type, _CPU)
        found = _results(fused, part, make_cache, part_type, device)
        for result, numbers in expected.items():
            off = (found[result] - numbers).abs().flatten(1).amax(1)
            share = off / numbers.abs().flatten(1).amax(1)
            yield f"{result} of a {name}", float(share.max()), TOLERANCES[part_type]
    for name, size, part_type, has_rules in (
        ("codebook 0", config.vocab_size, dtype, True),
        ("the others", config.code_predictor_config.vocab_size, predictor_type, False),
    ):
        on_cpu = _codes("plain", size, part_type, _CPU, has_rules=has_rules)
        chosen = _codes("fused", size, part_type, device, has_rules=has_rules)
        yield f"codes of {name}", float((chosen != on_cpu).float().mean()), 0.0
    for name, part, part_type in (
        ("talker", config, dtype),
        ("code predictor", config.code_predictor_config, predictor_dtype(dtype)),
    ):
        expected = _row_products(Operations(), part, part_type, _CPU)
        found = _row_products(fused, part, part_type, device)
        for result, numbers in expected.items():
            share = (found[result] - numbers).abs().max() / numbers.abs().max()
            yield f"{result} of a row of the {name}", float(share), TOLERANCES[part_type]


def _drawing(dtype: torch.dtype, device: torch.device) -> Draw:
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator).to(device, dtype)


@torch.inference_mode()
def _row_products(
    operations: Operations, config: TransformerConfig, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Run the products of a layer on one row of random numbers; return float32 on the CPU."""
    draw = _drawing(dtype, device)
    hidden, inner = config.hidden_size, config.intermediate_size
    results: dict[str, Tensor] = {}
    for name, width, outputs in (
        ("gate and up", hidden, 2 * inner),
        ("down", inner, hidden),
        ("attention output", config.num_attention_heads * config.head_dim, hidden),
    ):
        linear = Linear(width, outputs).to(device, dtype)
        linear.weight.copy_(draw(outputs, width) / width**0.5)
        results[name] = operations.product(draw(1, 1, width), linear).float().cpu()
    return results


@torch.inference_mode()
def _codes(
    kernels: Kernels, size: int, dtype: torch.dtype, device: torch.device, *, has_rules: bool
) -> Tensor:
    """Sample from random logits, some rows greedily; return [R] int64 on the CPU."""
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


def _paged_cache(
    steps: int, starts: tuple[int, ...] = _STARTS, pages: tuple[tuple[int, ...], ...] = _TABLE
) -> Callable[[TransformerConfig, Draw], tuple[KVCache, Tensor]]:
    """Return a function that makes the KV cache of the talker, and positions [B, `steps`]."""

    def make(config: TransformerConfig, draw: Draw) -> tuple[KVCache, Tensor]:
        count = 1 + max(map(max, pages))
        shape = (1, count, PAGE_POSITIONS, config.num_key_value_heads, config.head_dim)
        pool = KVPool(draw(*shape), draw(*shape))
        table, begin = (torch.tensor(of, device=pool.keys.device) for of in (pages, starts))
        positions = begin[:, None] + torch.arange(steps, device=begin.device)
        window = len(pages[0]) * PAGE_POSITIONS
        return PagedKVCache(pool, table, positions, window), positions

    return make


def _frame_cache(place: range) -> Callable[[TransformerConfig, Draw], tuple[KVCache, Tensor]]:
    """Return a function that makes the KV cache of a frame, and its positions `place` [1, T]."""

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
    make_cache: Callable[[TransformerConfig, Draw], tuple[KVCache, Tensor]],
    dtype: torch.dtype,
    device: torch.device,
) -> dict[str, Tensor]:
    """Run the operations of a layer on random numbers; return float32 results on the CPU."""
    draw = _drawing(dtype, device)
    cache, positions = make_cache(config, draw)
    rows, steps, width = len(cache.pages(0).table), positions.shape[1], config.head_dim
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
    attended = operations.attend(heads, head_norm, rotated, cache, 0)
    pages = cache.pages(0)
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
