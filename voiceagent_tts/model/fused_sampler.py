"""A code is chosen for every row in one launch: what `TorchSampler` does, as one kernel.

Plainly it takes some fifteen small launches, thirty where there are rules, sixteen times a frame;
on a GPU each takes longer than its arithmetic. Here a program reads a row's logits once and keeps
them in registers. There is no top-p, which would need a sort. Whoever imports this needs Triton.
"""

# What `triton.jit` compiles is in Triton's language: its releases type that differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.sampling import LogitRules, RowSettings, SamplingBounds, SamplingSettings

_ZERO_BITS = {torch.float32: 0, torch.float16: 13, torch.bfloat16: 16}
"""How many bits at the end of a float32 are 0 that was one of these."""
_WARP_CODES = 512
"""A thread's 16 codes stay in registers, and reductions pass over few warps."""
_NO_RULES = (None, 0, None, 0, None, 0, None, None)


@triton.jit
def _key(scores):
    """An int32 that grows with its float32."""
    bits = scores.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


# Each program reads one number of a column, which may begin anywhere.
@triton.jit(
    do_not_specialize_on_alignment=(
        "uniform", "is_sampled", "temperature", "top_k", "penalty", "may_end",
    )
)  # fmt: skip
def _choose(
    codes, logits, logits_step, uniform, uniform_step, is_sampled, is_sampled_step,
    temperature, temperature_step, top_k, top_k_step,
    seen, seen_step, penalty, penalty_step, may_end, may_end_step, is_control, is_end,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, ZERO_BITS: tl.constexpr,
    HAS_SAMPLED: tl.constexpr, HAS_TOP_K: tl.constexpr, HAS_RULES: tl.constexpr,
):  # fmt: skip
    """A program a row; `WIDE` is the power of two that holds `WIDTH`, the vocabulary."""
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
    # Where nothing is found, as among scores that are no numbers, it is the last id.
    code = tl.min(tl.where(scores == best, ids, WIDTH - 1), 0)
    if HAS_SAMPLED:
        if tl.load(is_sampled + row * is_sampled_step) != 0:
            heat = tl.load(temperature + row * temperature_step)
            kept = tl.div_rn(scores, heat)
            if HAS_TOP_K:
                k = tl.load(top_k + row * top_k_step).to(tl.int32)
                if k > 0:
                    # The k-th score, by bisection of the keys: each step halves them and counts
                    # once, and it ends where k are told apart from the rest. 16 steps at most for
                    # bfloat16, whose keys have as many bits, 32 for float32; of normal scores 14
                    # and 16 on average. A step is mostly waiting for other warps. More bits a
                    # step would count as often, a histogram would wait for shared memory, and a
                    # sort of 2,048 has 66 steps that wait as long.
                    keys = _key(scores) >> ZERO_BITS
                    low, high = tl.min(keys, 0), _key(best) >> ZERO_BITS
                    while low < high:
                        middle = (low | high) - ((low ^ high) >> 1)  # rounded up, no overflow
                        count = tl.sum((keys >= middle).to(tl.int32), 0)
                        low = tl.where(count >= k, middle, low)
                        high = tl.where(count > k, high, middle - 1)
                    last = tl.min(tl.where(keys >= low, scores, float("inf")), 0)
                    # Compared after the division, which may make two scores one.
                    kept = tl.where(kept < tl.div_rn(last, heat), float("-inf"), kept)
            weights = tl.exp(kept - tl.div_rn(best, heat))
            # A parallel sum need not grow evenly: what has no probability is never drawn.
            cumulative = tl.where(weights > 0, tl.cumsum(weights, 0), 0.0)
            # A uniform number is at least 2^-23 below 1, so that the target stays below the total.
            target = tl.load(uniform + row * uniform_step) * tl.max(cumulative, 0)
            code = tl.min(tl.where(cumulative > target, ids, WIDTH - 1), 0)
    tl.store(codes + row, code.to(tl.int64))


class FusedSampler:
    """Chooses as `TorchSampler` does, up to the order in which probabilities are added.

    Args:
        bounds: what rows may ask for; without top-p.
    """

    def __init__(self, bounds: SamplingBounds) -> None:
        assert not bounds.has_top_p, bounds
        self._bounds = bounds

    def covers(self, settings: SamplingSettings) -> bool:
        """See `Sampler`."""
        return self._bounds.covers(settings)

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
        _choose[(rows,)](
            codes,
            logits,
            logits.stride(0),
            *_column(uniform),
            *_column(settings.is_sampled),
            *_column(settings.temperature),
            *_column(settings.top_k),
            *(_NO_RULES if rules is None else _columns_and_ids(rules)),
            WIDTH=width,
            WIDE=wide,
            # A penalty leaves no bits 0.
            ZERO_BITS=_ZERO_BITS[logits.dtype] if rules is None else 0,
            HAS_SAMPLED=self._bounds.is_sampled,
            HAS_TOP_K=self._bounds.top_k > 0,
            HAS_RULES=rules is not None,
            num_warps=min(max(wide // _WARP_CODES, 1), 8),
            enable_fp_fusion=True,
        )
        return codes


def _column(numbers: Tensor) -> tuple[Tensor, int]:
    """One number of each row, or one row, and how far it is to the next."""
    return numbers, numbers.stride(0)


def _columns_and_ids(rules: LogitRules) -> tuple[Tensor | int, ...]:
    columns = *_column(rules.seen), *_column(rules.penalty), *_column(rules.may_end)
    return *columns, rules.is_control, rules.is_end
