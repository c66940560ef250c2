"""Triton kernels for the operations between two matrix products: one launch each.

The kernels round where PyTorch's operations round, so results differ only in the order of sums.
Attention reads pages in place, up to each row's own position: no window, no mask, no copy. Passes
over more than two positions (prompts) use the attention of `fused_prompt`. Importing this module
needs Triton.

One program of the attention kernel computes the queries of a row that share keys. Its warps wait
for each other at every reduction, so that few warps are fast wherever other programs fill the GPU.
For a layer of 1 / 64 / 256 rows an H100 took 2.9 / 4.5 / 8.0 us over the positions of a frame
(5.5 / 16 / 60 with 8 warps), and 7.9 / 26.5 / 81 us over 200 positions (8.6 / 35 / 127); the last
reads 210 MB, which take 70 us. With products on tensor cores it was 5.6 / 23 / 80 us: not worth a
second kernel. Keys are not split over several programs, which would pay for a lone row of more than
1,000 positions.

For a lone row cuBLAS takes at least 5 us a product on an H100, whatever the size of the matrix. The
316 products of a frame of the 1.7B model take 15 % less time of the whole frame in `multiply_row`:
4.6 us in place of 5.6 for a matrix of 4,096 x 1,024 (8.4 MB), 3.3 in place of 5.8 for 1,024 x
2,048, 4.4 in place of 7.7 for 1,024 x 3,072.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import next_power_of_2

from voiceagent_tts.model.attention import KVCache
from voiceagent_tts.model.fused_prompt import NOTHING, attend_prompt, places_of, turn
from voiceagent_tts.model.layers import HeadNorm, Linear, Operations, RMSNorm, Rotation

_MOST_STEPS = 2
"""Maximum new positions per row of the attention kernel: one of a step, two of a frame's start."""
_FRAME_WARPS, _WARPS, _LONE_WARPS = 1, 2, 4
"""Warps per program of the attention kernel: over the positions of a frame; over more positions,
where the programs of all rows fill a GPU; and where they do not."""
_FRAME_POSITIONS = 32
"""Most positions of a row that are a frame's: those of its codebooks."""
_FILLING_PROGRAMS = 264
"""Programs that fill a GPU: two for every multiprocessor of an H100."""
_THREAD_BYTES = 16
"""Bytes that a thread loads at once."""
_WARP_BYTES = 2_048
"""Bytes of keys that a warp reads at once, plus the same of values. They stay in registers."""
_GATE_BLOCK = 1024
_OUTPUTS = 4
"""Outputs of a program that multiplies a row."""
_INPUTS = 1024
"""Maximum inputs that such a program reads at once."""
# `enable_fp_fusion` is explicit because Triton no longer fuses by default from 3.10 on.


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
    highest = tl.full([LINES, SLOTS, 1, 1], NOTHING, tl.float32)
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


@triton.jit
def _multiply_row(
    x, weight, result, outputs,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Compute `COLUMNS` outputs per program; `DEPTH` divides `WIDTH`."""
    output, inner = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    is_output = (output < outputs)[:, None]
    place = output.to(tl.int64)[:, None] * WIDTH + inner[None, :]
    sums = tl.zeros([COLUMNS, DEPTH], tl.float32)
    for start in tl.static_range(0, WIDTH, DEPTH):
        # Weights of other layers follow; these are read again a whole frame later.
        matrix = tl.load(weight + start + place, is_output, 0.0, eviction_policy="evict_first")
        sums += matrix.to(tl.float32) * tl.load(x + start + inner)[None, :].to(tl.float32)
    tl.store(result + output, tl.sum(sums, 1).to(result.dtype.element_ty), output < outputs)


def multiply_row(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply one row [..., inputs] by `weight` [outputs, inputs]: [..., outputs].

    Products are summed in float32 and rounded once.
    """
    outputs, width = weight.shape
    result = x.new_empty(*x.shape[:-1], outputs)
    depth = min(_INPUTS, width & -width)  # the largest power of two that divides the width
    _multiply_row[triton.cdiv(outputs, _OUTPUTS),](
        x.contiguous(), weight, result, outputs, width, _OUTPUTS, depth,
        num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return result


class FusedOperations(Operations):
    """Operations by Triton: one launch each, two for the attention of a prompt.

    Products of several rows are PyTorch's.
    """

    def add_norm(self, x: Tensor, added: Tensor | None, norm: RMSNorm) -> tuple[Tensor, Tensor]:
        """See `Operations`."""
        x, width = x.contiguous(), x.shape[-1]
        has_added = added is not None
        total, normed = torch.empty_like(x) if has_added else x, torch.empty_like(x)
        _add_norm[x.numel() // width,](
            x, added.contiguous() if has_added else x, norm.weight, total, normed, norm.eps,
            has_added, width, next_power_of_2(width),
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
        wide, lines = next_power_of_2(width), next_power_of_2(steps * (queries // groups))
        head_bytes = heads.element_size() * wide
        warps = _attention_warps(page, rows * groups)
        slots = min(next_power_of_2(page), max(1, 32 * warps * _THREAD_BYTES // head_bytes))
        block = min(next_power_of_2(page), max(slots, warps * _WARP_BYTES // head_bytes))
        assert pages.keys.is_contiguous() and pages.values.is_contiguous(), (
            "expected contiguous pages"
        )
        assert page % block == 0 or page < block, f"pages of {page}, blocks of {block}"
        attended = torch.empty_like(heads[:, :, :queries], memory_format=torch.contiguous_format)
        _attend[rows, groups](
            heads, norm.weight, rotated.cos, rotated.sin, pages.keys, pages.values, pages.table,
            pages.positions, attended, norm.eps, math.log2(math.e) / math.sqrt(width),
            places_of(rotated), pages.table.stride(0), pages.positions.stride(0), steps, queries,
            groups, width, page, lines, next_power_of_2(steps), wide, block // slots, slots,
            num_warps=warps, enable_fp_fusion=True,
        )  # fmt: skip
        return attended

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Operations`."""
        gate_up, width = gate_up.contiguous(), gate_up.shape[-1] // 2
        gated = gate_up.new_empty(*gate_up.shape[:-1], width)
        block = min(_GATE_BLOCK, next_power_of_2(width))
        _gate[gated.numel() // width, -(-width // block)](
            gate_up, gated, width, block, num_warps=_warps(block), enable_fp_fusion=True
        )
        return gated

    def product(self, x: Tensor, linear: Linear) -> Tensor:
        """See `Operations`."""
        is_row = x.numel() == x.shape[-1]
        return multiply_row(x, linear.weight) if is_row else linear(x)


def _attention_warps(page: int, programs: int) -> int:
    if page <= _FRAME_POSITIONS:
        return _FRAME_WARPS
    return _WARPS if programs >= _FILLING_PROGRAMS else _LONE_WARPS


def _warps(width: int) -> int:
    """Return the warps for eight numbers per thread: a thread reads sixteen bytes at once."""
    return min(16, max(1, next_power_of_2(width) // 256))
