"""Logits become codes, on the device, for rows that each have settings of their own.

The order is the reference's: repetition penalty, end not before frame 2, suppressed ids,
temperature, top-k, top-p, draw. Random numbers are a function of (seed, frame, codebook) alone, so
that a seed gives the same codes whatever else is in the batch. Knows no network.

Source: transformers 4.57 `GenerationMixin` with the arguments of qwen-tts 0.1.1; Philox4x32-10 of
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from dataclasses import dataclass, field
from typing import Protocol

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


class Choosing(Protocol):
    """What chooses codes for the rows of a batch."""

    def set_row(self, row: int, choice: Choice) -> None:
        """Use `choice` for `row` from now on."""
        ...

    def choose(self, scores: Tensor, uniform: Tensor, rows: slice = slice(None)) -> Tensor:
        """Choose a code for each of `rows`.

        Args:
            scores: [R, V] float32; -inf is never chosen.
            uniform: [R] float32 in [0, 1), one random number each.
            rows: which of the batch these are.

        Returns:
            [R] int64.
        """
        ...


class Chooser:
    """The `Choice` of every row of a batch, as tensors that are written in place.

    Args:
        rows: of the batch.
        device: where the logits are.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._choices = [Choice(is_sampled=False)] * rows
        self._is_sampled = torch.zeros(rows, 1, dtype=torch.bool, device=device)
        self._temperature = torch.ones(rows, 1, device=device)
        self._top_k = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        self._top_p = torch.ones(rows, 1, device=device)

    def set_row(self, row: int, choice: Choice) -> None:
        """See `Choosing`."""
        self._choices[row] = choice
        self._is_sampled[row] = choice.is_sampled
        self._temperature[row] = choice.temperature
        self._top_k[row] = choice.top_k
        self._top_p[row] = choice.top_p

    def choose(self, scores: Tensor, uniform: Tensor, rows: slice = slice(None)) -> Tensor:
        """See `Choosing`."""
        likeliest = scores.argmax(dim=-1)
        sampled = [choice for choice in self._choices[rows] if choice.is_sampled]
        if not sampled:
            return likeliest
        kept = scores / self._temperature[rows]
        widest = min(max(choice.top_k for choice in sampled), scores.shape[-1])
        if widest:
            kept = _keep_top_k(kept, self._top_k[rows], widest)
        if any(choice.top_p < 1 for choice in sampled):
            kept = _keep_top_p(kept, self._top_p[rows])
        drawn = _draw(kept.softmax(dim=-1), uniform)
        return torch.where(self._is_sampled[rows, 0], drawn, likeliest)


def first_scores(logits: Tensor, seen: Tensor, penalty: Tensor, banned: Tensor) -> Tensor:
    """Scores of codebook 0: codes that a row has had are less likely, banned ids impossible.

    Args:
        logits: [R, V], of any precision.
        seen: [R, V] bool, codes of the row so far.
        penalty: [R, 1]; logits of seen codes above 0 are divided by it, those below multiplied.
        banned: [R, V] bool.

    Returns:
        [R, V] float32.
    """
    logits = logits.float()
    penalized = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, penalized, logits).masked_fill(banned, float("-inf"))


def uniforms(seeds: Tensor, frames: Tensor, codebooks: int) -> Tensor:
    """The random numbers of one frame of each row.

    Args:
        seeds: [R] int64.
        frames: [R] int64, number of the frame in its row.
        codebooks: K.

    Returns:
        [R, K] float32, multiples of 2^-23 in [0, 1): one for each code of the frame.
    """
    blocks = torch.arange(-(-codebooks // _PHILOX_WORDS), device=seeds.device)
    block, frame = torch.broadcast_tensors(blocks, frames[:, None] & _WORD)
    zeros = torch.zeros_like(block)
    key = (seeds[:, None] & _WORD, seeds[:, None] >> 32 & _WORD)
    words = torch.stack(philox((frame, block, zeros, zeros), key), dim=-1)
    return (words.flatten(1)[:, :codebooks] >> 9).float() * 2.0**-23


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 on 32-bit words held in int64 tensors that broadcast."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(_PHILOX_ROUNDS):
        # The products wrap to 64 bits; a masked shift takes their upper word all the same.
        low, high = x0 * _PHILOX_MULTIPLIERS[0], x2 * _PHILOX_MULTIPLIERS[1]
        x0, x1 = (high >> 32 & _WORD) ^ x1 ^ k0, high & _WORD
        x2, x3 = (low >> 32 & _WORD) ^ x3 ^ k1, low & _WORD
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
