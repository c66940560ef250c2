"""Sample a code for every row in one launch: `Sampler` as one Triton kernel.

`Sampler` needs about fifteen small launches per codebook, thirty with rules, sixteen times per
frame; on a GPU each launch takes longer than its arithmetic. Here a program reads the logits of a
row once and keeps them in registers. Top-p is not supported, because it would need a sort.
Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.sampling import LogitRules, RowSettings, Sampler

_ZERO_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
"""Trailing zero bits of a float32 that was converted from each dtype."""
_WARP_CODES = 512
"""Codes per warp: 16 per thread fit in registers, and reductions cross few warps."""
_NO_RULES = (None, 0, None, 0, None, 0, None, None)


@triton.jit
def _key(scores):
    """Map float32 to int32 monotonically."""
    bits = scores.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


# Each program reads one number of a column, which may be a column of records: not aligned.
@triton.jit(
    do_not_specialize=(
        "uniform_step", "is_sampled_step", "temperature_step", "top_k_step", "penalty_step",
        "may_end_step",
    ),
    do_not_specialize_on_alignment=(
        "uniform", "is_sampled", "temperature", "top_k", "penalty", "may_end",
    )
)  # fmt: skip
def _sample(
    codes, logits, logits_step, uniform, uniform_step, is_sampled, is_sampled_step,
    temperature, temperature_step, top_k, top_k_step,
    seen, seen_step, penalty, penalty_step, may_end, may_end_step, is_control, is_end,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, ZERO_BITS: tl.constexpr,
    HAS_SAMPLED: tl.constexpr, HAS_TOP_K: tl.constexpr, HAS_RULES: tl.constexpr,
):  # fmt: skip
    """Sample one row per program; `WIDE` is `WIDTH`, the vocabulary, rounded up to a power of 2."""
    row, ids = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    is_in = ids < WIDTH
    scores = tl.load(logits + row * logits_step + ids, is_in, float("-inf")).to(tl.float32)
    if HAS_RULES:
        by = tl.load(penalty + row * penalty_step)
        penalized = tl.where(scores < 0, scores * by, tl.div_rn(scores, by))
        is_seen = tl.load(seen + row * seen_step + ids, is_in, 0) != 0
        scores = tl.where(is_seen, penalized, scores)
        is_banned = tl.load(is_control + ids, is_in, 0) != 0
        if tl.load(may_end + row * may_end_step) == 0:
            is_banned |= tl.load(is_end + ids, is_in, 0) != 0
        scores = tl.where(is_banned, float("-inf"), scores)
    best = tl.max(scores, 0)
    # If no score equals the maximum, as with NaN, the code is the last id.
    code = tl.min(tl.where(scores == best, ids, WIDTH - 1), 0)
    if HAS_SAMPLED:
        if tl.load(is_sampled + row * is_sampled_step) != 0:
            heat = tl.load(temperature + row * temperature_step)
            kept = tl.div_rn(scores, heat)
            if HAS_TOP_K:
                k = tl.load(top_k + row * top_k_step).to(tl.int32)
                if k > 0:
                    # Find the k-th score by bisection of the keys: each step halves the range and
                    # counts once, until exactly k keys are above it. At most 16 steps for
                    # bfloat16 (16-bit keys), 32 for float32; 14 and 16 on average for normal
                    # scores. Most of a step is synchronisation between warps. More bits per step
                    # would need as many counts, a histogram would wait for shared memory, and a
                    # sort of 2,048 has 66 steps that wait as long.
                    keys = _key(scores) >> ZERO_BITS
                    low, high = tl.min(keys, 0), _key(best) >> ZERO_BITS
                    while low < high:
                        middle = (low | high) - ((low ^ high) >> 1)  # rounded up, no overflow
                        count = tl.sum((keys >= middle).to(tl.int32), 0)
                        low = tl.where(count >= k, middle, low)
                        high = tl.where(count > k, high, middle - 1)
                    last = tl.min(tl.where(keys >= low, scores, float("inf")), 0)
                    # Compare after the division, which may round two scores to one.
                    kept = tl.where(kept < tl.div_rn(last, heat), float("-inf"), kept)
            weights = tl.exp(kept - tl.div_rn(best, heat))
            # A parallel sum need not be monotonic: never draw a code without probability.
            cumulative = tl.where(weights > 0, tl.cumsum(weights, 0), 0.0)
            # A uniform number is at least 2^-23 below 1, so the target stays below the total.
            target = tl.load(uniform + row * uniform_step) * tl.max(cumulative, 0)
            code = tl.min(tl.where(cumulative > target, ids, WIDTH - 1), 0)
    tl.store(codes + row, code.to(tl.int64))


class FusedSampler(Sampler):
    """Samples in one launch, without top-p; probabilities are summed in another order."""

    def sample(
        self,
        logits: Tensor,
        uniform: Tensor,
        settings: RowSettings,
        rules: LogitRules | None = None,
    ) -> Tensor:
        """See `Sampler`."""
        rows, width = logits.shape
        assert logits.stride(1) == 1, logits.stride()
        codes = torch.empty(rows, dtype=torch.int64, device=logits.device)
        wide = triton.next_power_of_2(width)
        _sample[(rows,)](
            codes,
            logits,
            logits.stride(0),
            *_column(uniform),
            *_column(settings.is_sampled),
            *_column(settings.temperature),
            *_column(settings.top_k),
            *(_NO_RULES if rules is None else _rule_arguments(rules)),
            WIDTH=width,
            WIDE=wide,
            # A penalty can set the trailing bits.
            ZERO_BITS=_ZERO_BITS[logits.dtype] if rules is None else 0,
            HAS_SAMPLED=self.bounds.is_sampled,
            HAS_TOP_K=self.bounds.top_k > 0,
            HAS_RULES=rules is not None,
            num_warps=min(max(wide // _WARP_CODES, 1), 8),
            enable_fp_fusion=True,
        )
        return codes


def _column(numbers: Tensor) -> tuple[Tensor, int]:
    return numbers, numbers.stride(0)


def _rule_arguments(rules: LogitRules) -> tuple[Tensor | int, ...]:
    columns = *_column(rules.seen), *_column(rules.penalty), *_column(rules.may_end)
    return *columns, rules.is_control, rules.is_end
