"""Sample codes from logits on the device; each row of a batch has its own settings.

The order of operations is the reference's: repetition penalty, no end token before frame 2,
suppressed ids, temperature, top-k, top-p, draw. Random numbers are a function of (seed, frame,
codebook) alone, so a seed gives the same codes whatever else is in the batch. The host knows all
three in advance and computes the numbers ahead of the pass.

Source: transformers 4.57 `GenerationMixin` with the arguments of qwen-tts 0.1.1; Philox4x32-10 of
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.model.config import GenerationConfig

MIN_FRAMES = 2
"""Minimum frames of a sequence, as the official package has it (`min_new_tokens=2`)."""

_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10
_PHILOX_WORDS = 4
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How one code is sampled from its logits.

    Attributes:
        is_sampled: False picks the most likely code (greedy).
        temperature: divisor of the logits, above 0; below 1 sharpens the distribution.
        top_k: keep the k most likely codes, and codes that tie with the last of them; 0 keeps all.
        top_p: keep the most likely codes that together reach this probability, above 0; 1 keeps
            all.
    """

    is_sampled: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one sequence is sampled.

    Attributes:
        predictor: settings for the other codebooks.
        repetition_penalty: how much less likely codebook-0 codes become that the sequence already
            has (`LogitRules` has the formula); 1 for no penalty.
    """

    talker: SamplingSettings = field(default_factory=SamplingSettings)
    predictor: SamplingSettings = field(default_factory=SamplingSettings)
    repetition_penalty: float = 1.05
    seed: int = 0


def sampling_params(config: GenerationConfig, seed: int = 0) -> SamplingParams:
    """Return the parameters that a checkpoint recommends."""
    return SamplingParams(
        SamplingSettings(config.do_sample, config.temperature, config.top_k, config.top_p),
        SamplingSettings(
            config.subtalker_dosample,
            config.subtalker_temperature,
            config.subtalker_top_k,
            config.subtalker_top_p,
        ),
        config.repetition_penalty,
        seed,
    )


@dataclass(frozen=True, slots=True)
class SamplingBounds:
    """The widest settings that a batch supports; the sampler computes no more than they need.

    Attributes:
        has_top_p: whether any row may have a top-p below 1.
    """

    is_sampled: bool = False
    top_k: int = 0
    has_top_p: bool = False

    @classmethod
    def of(cls, settings: Iterable[SamplingSettings]) -> "SamplingBounds":
        """Return the narrowest bounds that cover all of `settings`."""
        sampled = [row for row in settings if row.is_sampled]
        return cls(
            bool(sampled),
            max((row.top_k for row in sampled), default=0),
            any(row.top_p < 1 for row in sampled),
        )

    def covers(self, settings: SamplingSettings) -> bool:
        """Whether a row may have these settings."""
        return not settings.is_sampled or (
            self.is_sampled
            and settings.top_k <= self.top_k
            and (settings.top_p == 1 or self.has_top_p)
        )


@dataclass(frozen=True, slots=True)
class RowSettings:
    """`SamplingSettings` of R rows as columns on the device, each [R, 1].

    They are bool, float32, int64 and float32.
    """

    is_sampled: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor


@dataclass(frozen=True, slots=True)
class LogitRules:
    """Corrections to the codebook-0 logits of R rows, on the device.

    Attributes:
        seen: [R, V] bool, codes that the row already has; the penalty makes them less likely.
        penalty: [R, 1] float32; positive logits of seen codes are divided by it, negative ones
            multiplied.
        may_end: [R, 1] of any integer type, 0 where the row may not end yet.
        is_control: [V] bool, ids that are never a code.
        is_end: [V] bool, the id that ends a sequence.
    """

    seen: Tensor
    penalty: Tensor
    may_end: Tensor
    is_control: Tensor
    is_end: Tensor


class Sampler:
    """Samples one code for every row of a batch with PyTorch operations, as the reference does.

    Which operations run depends on the bounds alone, so that a pass can be captured.

    Attributes:
        bounds: widest settings of any row.
    """

    def __init__(self, bounds: SamplingBounds) -> None:
        self.bounds = bounds

    def sample(
        self,
        logits: Tensor,
        uniform: Tensor,
        settings: RowSettings,
        rules: LogitRules | None = None,
    ) -> Tensor:
        """Sample one code for each row: [R] int64.

        logits: [R, V] float32, float16 or bfloat16, of which -inf is never sampled; uniform: [R]
        float32 in [0, 1), one random number per row; `rules` correct codebook 0.
        """
        scores = corrected_scores(logits, rules)
        most_likely = scores.argmax(dim=-1)
        if not self.bounds.is_sampled:
            return most_likely
        kept = scores / settings.temperature
        if self.bounds.top_k:
            kept = _keep_top_k(kept, settings.top_k, min(self.bounds.top_k, scores.shape[-1]))
        if self.bounds.has_top_p:
            kept = _keep_top_p(kept, settings.top_p)
        drawn = _draw(kept.softmax(dim=-1), uniform)
        return torch.where(settings.is_sampled[:, 0], drawn, most_likely)


def corrected_scores(logits: Tensor, rules: LogitRules | None) -> Tensor:
    """Apply `rules`, if any, to logits [R, V] of any precision; return [R, V] float32."""
    logits = logits.float()
    if rules is None:
        return logits
    penalized = torch.where(logits < 0, logits * rules.penalty, logits / rules.penalty)
    is_banned = rules.is_control | (rules.is_end & (rules.may_end == 0))
    return torch.where(rules.seen, penalized, logits).masked_fill(is_banned, float("-inf"))


def uniforms(seeds: np.ndarray, frames: np.ndarray, codebooks: int) -> np.ndarray:
    """Return the random numbers of some frames of some sequences, one for each code.

    seeds: [R] uint64; frames: [R, F] of any integer type, or [1, F] if all sequences have the same.

    Returns:
        [R, F, K] float32, multiples of 2^-23 in [0, 1).
    """
    blocks = np.arange(-(-codebooks // _PHILOX_WORDS), dtype=np.uint64)
    seed, frame, block = np.broadcast_arrays(
        seeds[:, None, None], frames.astype(np.uint64)[..., None], blocks
    )
    zeros = np.zeros_like(frame)
    words = philox((frame, block, zeros, zeros), (seed & np.uint64(_WORD), seed >> np.uint64(32)))
    numbers = np.stack(words, axis=-1).reshape(*frame.shape[:2], _PHILOX_WORDS * len(blocks))
    numbers = numbers[..., :codebooks] >> np.uint64(9)
    return numbers.astype(np.float32) * np.float32(2.0**-23)


def philox(
    counter: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    key: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Compute Philox4x32-10 on 32-bit words stored in uint64 arrays of one shape."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    word, half = np.uint64(_WORD), np.uint64(32)
    low_factor, high_factor = (np.uint64(factor) for factor in _PHILOX_MULTIPLIERS)
    weyl_0, weyl_1 = (np.uint64(weyl) for weyl in _PHILOX_WEYL)
    for _ in range(_PHILOX_ROUNDS):
        low, high = x0 * low_factor, x2 * high_factor
        x0, x1 = (high >> half) ^ x1 ^ k0, high & word
        x2, x3 = (low >> half) ^ x3 ^ k1, low & word
        k0, k1 = k0 + weyl_0 & word, k1 + weyl_1 & word
    return x0, x1, x2, x3


def _keep_top_k(scores: Tensor, top_k: Tensor, max_top_k: int) -> Tensor:
    """Set scores below each row's k-th to -inf; `top_k` is [R, 1], 0 for all, at most the max."""
    best = scores.topk(max_top_k, dim=-1).values
    last = best.gather(1, (top_k - 1).clamp(0, max_top_k - 1))
    return scores.masked_fill((scores < last) & (top_k > 0), float("-inf"))


def _keep_top_p(scores: Tensor, top_p: Tensor) -> Tensor:
    """Set to -inf the least likely codes whose total probability is at most 1 - `top_p` [R, 1]."""
    ascending, order = scores.sort(dim=-1)
    is_dropped = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    is_dropped[:, -1] = False
    return scores.masked_fill(is_dropped.scatter(1, order, is_dropped), float("-inf"))


def _draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the first code whose cumulative probability [R, V] exceeds `uniform` [R]."""
    cumulative = probabilities.cumsum(dim=-1)
    # A uniform number is at least 2^-23 below 1, so the target stays below the total.
    is_beyond = cumulative > uniform[:, None] * cumulative[:, -1:]
    # A parallel sum need not be monotonic: never draw a code without probability.
    return (is_beyond & (probabilities > 0)).int().argmax(dim=-1)
