"""Logits become codes, on the device, for rows that each have settings of their own.

The order is the reference's: repetition penalty, end not before frame 2, suppressed ids,
temperature, top-k, top-p, draw. Random numbers are a function of (seed, frame, codebook) alone, so
that a seed gives the same codes whatever else is in the batch; the host, which knows all three,
computes them ahead. Knows no network.

Source: transformers 4.57 `GenerationMixin` with the arguments of qwen-tts 0.1.1; Philox4x32-10 of
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.config import GenerationConfig

MIN_FRAMES = 2
"""A model may not end earlier: an end at frame 0 would be empty audio."""

_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_PHILOX_ROUNDS = 10
_PHILOX_WORDS = 4
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Choice:
    """How one code is chosen from its logits.

    Attributes:
        is_sampled: False takes the most likely.
        temperature: above 0; below 1 sharpens.
        top_k: only the k most likely, and those as likely as the last of them; 0 for all.
        top_p: only the most likely that together reach this probability; 1 for all.
    """

    is_sampled: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, is_valid, expected in (
            ("temperature", self.temperature > 0, "above 0"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
        ):
            if not is_valid:
                raise InvalidRequestError(
                    f"{name} is {getattr(self, name)}; expected {expected}",
                    code=ErrorCode.INVALID_PARAM,
                )


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a row is sampled.

    Attributes:
        talker: for codebook 0.
        predictor: for the other codebooks.
        repetition_penalty: divides the odds of every code of codebook 0 that the row has had; 1
            for none.
        seed: 64 bits.
    """

    talker: Choice = field(default_factory=Choice)
    predictor: Choice = field(default_factory=Choice)
    repetition_penalty: float = 1.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repetition_penalty <= 0:
            raise InvalidRequestError(
                f"repetition_penalty is {self.repetition_penalty}; expected above 0",
                code=ErrorCode.INVALID_PARAM,
            )


def sampling_params(config: GenerationConfig, seed: int = 0) -> SamplingParams:
    """What a checkpoint recommends."""
    return SamplingParams(
        Choice(config.do_sample, config.temperature, config.top_k, config.top_p),
        Choice(
            config.subtalker_dosample,
            config.subtalker_temperature,
            config.subtalker_top_k,
            config.subtalker_top_p,
        ),
        config.repetition_penalty,
        seed,
    )


@dataclass(frozen=True, slots=True)
class Reach:
    """What the rows of a batch may ask for: no more is computed.

    Attributes:
        is_sampled: whether any row is sampled.
        top_k: the largest; 0 where no row has one.
        has_top_p: whether any row has one below 1.
    """

    is_sampled: bool = False
    top_k: int = 0
    has_top_p: bool = False

    @classmethod
    def of(cls, choices: Iterable[Choice]) -> "Reach":
        """What `choices` ask for together."""
        sampled = [choice for choice in choices if choice.is_sampled]
        return cls(
            bool(sampled),
            max((choice.top_k for choice in sampled), default=0),
            any(choice.top_p < 1 for choice in sampled),
        )

    def covers(self, choice: Choice) -> bool:
        """Whether a row may ask for `choice`."""
        return not choice.is_sampled or (
            self.is_sampled and choice.top_k <= self.top_k and (choice.top_p == 1 or self.has_top_p)
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """The `Choice` of each of R rows, on the device, each [R, 1].

    Attributes:
        is_sampled: bool.
        temperature: float32.
        top_k: int64.
        top_p: float32.
    """

    is_sampled: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor


@dataclass(frozen=True, slots=True)
class Rules:
    """What the logits of codebook 0 do not know, of each of R rows, on the device.

    Attributes:
        seen: [R, V] bool, the codes that the row has had: they are less likely.
        penalty: [R, 1] float32; logits of seen codes above 0 are divided by it, those below
            multiplied.
        may_end: [R, 1] of any integer type, 0 where the row may not end yet.
        is_control: [V] bool, ids that no frame may have.
        is_end: [V] bool, the id that ends a row.
    """

    seen: Tensor
    penalty: Tensor
    may_end: Tensor
    is_control: Tensor
    is_end: Tensor


class Choosing(Protocol):
    """What chooses codes for the rows of a batch."""

    def covers(self, choice: Choice) -> bool:
        """Whether a row may ask for `choice`."""
        ...

    def choose(
        self, logits: Tensor, uniform: Tensor, choices: Choices, rules: Rules | None = None
    ) -> Tensor:
        """Choose a code for each row.

        Args:
            logits: [R, V] float32, float16 or bfloat16; -inf is never chosen.
            uniform: [R] float32 in [0, 1), one random number each.
            choices: how.
            rules: of codebook 0; None for the others.

        Returns:
            [R] int64.
        """
        ...


class Chooser:
    """Chooses as the reference does; which operations run depends on the reach alone.

    Args:
        reach: what rows may ask for.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def covers(self, choice: Choice) -> bool:
        """See `Choosing`."""
        return self._reach.covers(choice)

    def choose(
        self, logits: Tensor, uniform: Tensor, choices: Choices, rules: Rules | None = None
    ) -> Tensor:
        """See `Choosing`."""
        scores = logits.float() if rules is None else first_scores(logits, rules)
        likeliest = scores.argmax(dim=-1)
        if not self._reach.is_sampled:
            return likeliest
        kept = scores / choices.temperature
        if self._reach.top_k:
            kept = _keep_top_k(kept, choices.top_k, min(self._reach.top_k, scores.shape[-1]))
        if self._reach.has_top_p:
            kept = _keep_top_p(kept, choices.top_p)
        drawn = _draw(kept.softmax(dim=-1), uniform)
        return torch.where(choices.is_sampled[:, 0], drawn, likeliest)


def first_scores(logits: Tensor, rules: Rules) -> Tensor:
    """[R, V] float32 scores of codebook 0, by its logits [R, V] of any precision and its rules."""
    logits = logits.float()
    penalized = torch.where(logits < 0, logits * rules.penalty, logits / rules.penalty)
    is_banned = rules.is_control | (rules.is_end & (rules.may_end == 0))
    return torch.where(rules.seen, penalized, logits).masked_fill(is_banned, float("-inf"))


def uniforms(seed: int, frames: np.ndarray, codebooks: int) -> np.ndarray:
    """The random numbers of some frames of a row.

    Args:
        seed: 64 bits, signed or not.
        frames: [F] of any integer type, their numbers.
        codebooks: K.

    Returns:
        [F, K] float32, multiples of 2^-23 in [0, 1): one for each code of a frame.
    """
    blocks = np.arange(-(-codebooks // _PHILOX_WORDS), dtype=np.uint64)
    frame, block = np.broadcast_arrays(frames.astype(np.uint64)[:, None], blocks)
    zeros = np.zeros_like(frame)
    words = philox((frame, block, zeros, zeros), (seed & _WORD, seed >> 32 & _WORD))
    numbers = np.stack(words, axis=-1).reshape(len(frames), -1)[:, :codebooks]
    return (numbers >> np.uint64(9)).astype(np.float32) * np.float32(2.0**-23)


def philox(
    counter: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], key: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Philox4x32-10 on 32-bit words held in uint64 arrays of one shape."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    word, half = np.uint64(_WORD), np.uint64(32)
    low_factor, high_factor = (np.uint64(factor) for factor in _PHILOX_MULTIPLIERS)
    for _ in range(_PHILOX_ROUNDS):
        low, high = x0 * low_factor, x2 * high_factor
        x0, x1 = (high >> half) ^ x1 ^ np.uint64(k0), high & word
        x2, x3 = (low >> half) ^ x3 ^ np.uint64(k1), low & word
        k0, k1 = k0 + _PHILOX_WEYL[0] & _WORD, k1 + _PHILOX_WEYL[1] & _WORD
    return x0, x1, x2, x3


def _keep_top_k(scores: Tensor, top_k: Tensor, widest: int) -> Tensor:
    """-inf below each row's k-th score; [R, 1] `top_k`, 0 for all, no k above `widest`."""
    best = scores.topk(widest, dim=-1).values
    last = best.gather(1, (top_k - 1).clamp(0, widest - 1))
    return scores.masked_fill((scores < last) & (top_k > 0), float("-inf"))


def _keep_top_p(scores: Tensor, top_p: Tensor) -> Tensor:
    """-inf for the least likely that together have no more than 1 - `top_p` [R, 1]."""
    ascending, order = scores.sort(dim=-1)
    is_left_out = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - top_p
    is_left_out[:, -1] = False
    return scores.masked_fill(is_left_out.scatter(1, order, is_left_out), float("-inf"))


def _draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The first code up to which more than `uniform` [R] of the probability [R, V] lies."""
    cumulative = probabilities.cumsum(dim=-1)
    # A uniform number is at least 2^-23 below 1, so that the target stays below the total.
    is_beyond = cumulative > uniform[:, None] * cumulative[:, -1:]
    # A parallel sum need not grow evenly: what has no probability is never drawn.
    return (is_beyond & (probabilities > 0)).int().argmax(dim=-1)
