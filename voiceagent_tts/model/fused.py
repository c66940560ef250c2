"""Triton kernels for the operations between two matrix products: one launch each.

The kernels round where PyTorch's operations round, so results differ only in the order of sums.
Attention reads pages in place, up to each row's own position: no window, no mask, no copy. Passes
over more than two positions (prompts) use the attention of `fused_prompt`. Importing this module
needs Triton.

One program of the attention kernel computes the queries of a row that share keys. The figures here
are counted, not measured, for the 1.7B model on an H200. Dot products are plain sums: two queries
would leave seven eighths of a tensor core's tile empty, and the 2 ms per frame that the sums take
for 256 rows of 1,024 positions overlap with 7 ms of memory reads. Keys are not split over several
programs. The 8 programs of a single row read 32 positions in about 1 µs: 0.2 ms per frame for 200
positions, where a split would gain little more than its 28 extra launches cost; 0.9 ms for 1,024;
and 4 ms for the maximum of 4,608 positions, where a split would pay. Rows of voice agents are
short, and from 32 rows on the programs fill the GPU.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.attention import KVCache
from voiceagent_tts.model.fused_prompt import attend_prompt, places_of, turn
from voiceagent_tts.model.layers import HeadNorm, RMSNorm, Rotation, SeparateProducts

_MOST_STEPS = 2
"""Maximum new positions per row of the attention kernel: one of a step, two of a frame's start."""
_WARPS = 8
"""Warps per program of the attention kernel."""
_THREAD_BYTES = 16
"""Bytes that a thread loads at once."""
_BLOCK_BYTES = 8_192
"""Bytes of keys that a program reads at once, plus the same of values. They stay in registers, and
two programs fit on one multiprocessor with every release of Triton: 3.7 to 3.9 keep more of a block
in registers than 3.6 and spilled with blocks of twice the size."""
_GATE_BLOCK = 1024
# `enable_fp_fusion` is explicit because Triton no longer fuses by default from 3.10 on.
_NOTHING = tl.constexpr(-1e30)
"""Initial maximum of the scores, below any real score. Finite, so a difference of two is finite."""


@triton.jit
def _add_norm(
    x, added, weight, total, normed, eps,
    HAS_ADDED: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add and normalise one row per program; `WIDE` is `WIDTH` rounded up to a power of two."""
    dtype = x.dtype.element_ty
    place = tl.arange(0, WIDE)
    at, is_in = tl.program_id(0).to(tl.int64) * WIDTH + place, place < WIDTH
    stream = tl.load(x + at, is_in, 0.0).to(tl.float32)
    if HAS_ADDED:
        rounded = (stream + tl.load(added + at, is_in, 0.0).to(tl.float32)).to(dtype)
        tl.store(total + at, rounded, is_in)
        stream = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(stream * stream, 0) / WIDTH + eps)
    unweighted = (stream * scale).to(dtype).to(tl.float32)
    weights = tl.load(weight + place, is_in, 0.0).to(tl.float32)
    tl.store(normed + at, (weights * unweighted).to(dtype), is_in)


@triton.jit
def _gate(gate_up, gated, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Compute `silu(gate) * up` for one block of a row per program."""
    dtype = gate_up.dtype.element_ty
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = place < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + place, is_in, 0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * WIDTH + place, is_in, 0.0).to(tl.float32)
    opened = (gate / (1 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(gated + row * WIDTH + place, (opened * up).to(dtype), is_in)


# A pass of the code predictor may start at any position of a frame, and a row's positions and pages
# may be columns of its record. The check at the start compiles what is served, whatever they are.
@triton.jit(
    do_not_specialize=("rotation_places", "table_row", "positions_row"),
    do_not_specialize_on_alignment=("table", "positions"),
)
def _attend(
    heads, weight, cos, sin, keys, values, table, positions, attended,
    eps, scale, rotation_places, table_row, positions_row,
    STEPS: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    PAGE: tl.constexpr, LINES: tl.constexpr, NEW: tl.constexpr, WIDE: tl.constexpr,
    DEPTH: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Attend for the queries of one row that share keys: `LINES` of them, steps times heads.

    `LINES`, `NEW` and `WIDE` are the numbers of queries, steps and numbers per head, rounded up to
    powers of two. Earlier keys are read in blocks of `DEPTH` by `SLOTS`. Each slot has a softmax of
    its own until the end, so threads with different slots do not synchronise in the loop.
    """
    dtype = keys.dtype.element_ty
    share: tl.constexpr = QUERIES // GROUPS
    step_stride: tl.constexpr = (QUERIES + 2 * GROUPS) * WIDTH
    place_stride: tl.constexpr = GROUPS * WIDTH
    block: tl.constexpr = DEPTH * SLOTS
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heads += row * STEPS * step_stride
    cos += row * rotation_places * WIDTH
    sin += row * rotation_places * WIDTH
    table += row * table_row
    begin = tl.load(positions + row * positions_row).to(tl.int32)
    column = tl.arange(0, WIDE)
    is_column = (column < WIDTH)[None, :]

    line = tl.arange(0, LINES)
    of_step, head = line // share, group * share + line % share
    is_line = (of_step < STEPS)[:, None] & is_column
    angle = of_step[:, None] * WIDTH
    queries = turn(
        heads + of_step[:, None] * step_stride + head[:, None] * WIDTH,
        weight + head[:, None] * WIDTH, cos + angle, sin + angle, is_line, eps, WIDTH, WIDE,
    )  # fmt: skip

    new = tl.arange(0, NEW)
    is_new = (new < STEPS)[:, None] & is_column
    angle = new[:, None] * WIDTH
    sources = heads + new[:, None] * step_stride + (QUERIES + group) * WIDTH
    new_keys = turn(
        sources, weight + (QUERIES + group) * WIDTH, cos + angle, sin + angle, is_new, eps, WIDTH,
        WIDE,
    )  # fmt: skip
    new_values = tl.load(sources + place_stride + column[None, :], is_new, 0.0)
    place = begin + new
    page = tl.load(table + place // PAGE, new < STEPS, 0).to(tl.int64)
    goal = (page * PAGE + place % PAGE)[:, None] * place_stride + group * WIDTH + column[None, :]
    tl.store(keys + goal, new_keys.to(dtype), is_new)
    tl.store(values + goal, new_values, is_new)

    # All tensors below broadcast to [LINES, SLOTS, DEPTH, WIDE].
    queries = queries[:, None, None, :]
    slot, depth = tl.arange(0, SLOTS), tl.arange(0, DEPTH)
    ahead = slot[None, :, None, None] + SLOTS * depth[None, None, :, None]
    column = column[None, None, None, :]
    offsets = ahead * place_stride + group * WIDTH + column
    highest = tl.full([LINES, SLOTS, 1, 1], _NOTHING, tl.float32)
    total = tl.zeros([LINES, SLOTS, 1, 1], tl.float32)
    gathered = tl.zeros([LINES, SLOTS, 1, WIDE], tl.float32)
    page = tl.load(table).to(tl.int64)
    for start in tl.range(0, begin, block):
        is_earlier = ahead < begin - start
        source = (page * PAGE + start % PAGE) * place_stride
        old_keys = tl.load(keys + source + offsets, is_earlier & (column < WIDTH), 0.0)
        old_values = tl.load(values + source + offsets, is_earlier & (column < WIDTH), 0.0)
        following = start + block
        page = tl.load(table + following // PAGE, following < begin, 0).to(tl.int64)
        scores = tl.sum(queries * old_keys.to(tl.float32), 3, keep_dims=True) * scale
        scores = tl.where(is_earlier, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 2, keep_dims=True))
        shares, kept = tl.exp2(scores - higher), tl.exp2(highest - higher)
        total = total * kept + tl.sum(shares, 2, keep_dims=True)
        brought = tl.sum(shares * old_values.to(tl.float32), 2, keep_dims=True)
        gathered, highest = gathered * kept + brought, higher

    scores = tl.sum(queries * new_keys[None, None, :, :], 3, keep_dims=True) * scale
    step, new = of_step[:, None, None, None], new[None, None, :, None]
    scores = tl.where((new <= step) & (new < STEPS), scores, float("-inf"))
    most = tl.max(highest, 1, keep_dims=True)
    most = tl.maximum(most, tl.max(scores, 2, keep_dims=True))
    shares, kept = tl.exp2(scores - most), tl.exp2(highest - most)
    brought = tl.sum(shares * new_values.to(tl.float32)[None, None, :, :], 2, keep_dims=True)
    sums = tl.sum(total * kept, 1, keep_dims=True) + tl.sum(shares, 2, keep_dims=True)
    result = (tl.sum(gathered * kept, 1, keep_dims=True) + brought) / sums
    goal = (row * STEPS + of_step) * QUERIES * WIDTH + head * WIDTH
    goal = attended + goal[:, None] + tl.arange(0, WIDE)[None, :]
    tl.store(goal, tl.reshape(result, [LINES, WIDE]).to(dtype), is_line)


class FusedOperations(SeparateProducts):
    """Operations by Triton: one launch each, two for the attention of a prompt."""

    def add_norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """See `Operations`."""
        x, width = x.contiguous(), x.shape[-1]
        has_added = added is not None
        total, normed = torch.empty_like(x) if has_added else x, torch.empty_like(x)
        _add_norm[x.numel() // width,](
            x, added.contiguous() if has_added else x, norm.weight, total, normed, norm.eps,
            has_added, width, _power(width),
            num_warps=_warps(width), enable_fp_fusion=True,
        )  # fmt: skip
        return total, normed

    def attend(
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, cache: KVCache, layer: int
    ) -> Tensor:
        """See `Operations`."""
        rows, steps, count, width = heads.shape
        if steps > _MOST_STEPS:
            return attend_prompt(heads, norm, rotated, cache.pages(layer))
        heads, pages = heads.contiguous(), cache.pages(layer)
        queries, groups, page = norm.queries, count - len(norm.weight), pages.keys.shape[1]
        wide, lines = _power(width), _power(steps * (queries // groups))
        head_bytes = heads.element_size() * wide
        slots = min(_power(page), 32 * _WARPS * _THREAD_BYTES // head_bytes)
        block = min(_power(page), _BLOCK_BYTES // head_bytes)
        assert pages.keys.is_contiguous() and pages.values.is_contiguous(), (
            "expected contiguous pages"
        )
        assert page % block == 0 or page < block, f"pages of {page}, blocks of {block}"
        attended = torch.empty_like(heads[:, :, :queries], memory_format=torch.contiguous_format)
        _attend[rows, groups](
            heads, norm.weight, rotated.cos, rotated.sin, pages.keys, pages.values, pages.table,
            pages.positions, attended, norm.eps, math.log2(math.e) / math.sqrt(width),
            places_of(rotated), pages.table.stride(0), pages.positions.stride(0), steps, queries,
            groups, width, page, lines, _power(steps), wide, block // slots, slots,
            num_warps=_WARPS, enable_fp_fusion=True,
        )  # fmt: skip
        return attended

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Operations`."""
        gate_up, width = gate_up.contiguous(), gate_up.shape[-1] // 2
        gated = gate_up.new_empty(*gate_up.shape[:-1], width)
        block = min(_GATE_BLOCK, _power(width))
        _gate[gated.numel() // width, -(-width // block)](
            gate_up,
            gated,
            width,
            block,
            num_warps=_warps(block),
            enable_fp_fusion=True,
        )
        return gated


def _power(size: int) -> int:
    """Round up to a power of two."""
    return 1 << (size - 1).bit_length()


def _warps(width: int) -> int:
    """Return the warps for eight numbers per thread: a thread reads sixteen bytes at once."""
    return min(16, max(1, _power(width) // 256))
