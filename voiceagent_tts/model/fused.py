"""The operations of a layer as three kernels: what lies between two matrices is one launch.

They round where the plain ones round, so that only the order of sums differs, and attention reads
pages where they lie, only as far as each row has come: no window, no mask, no copy. A pass over
more than two positions, a prompt's, has the plain attention. Whoever imports this needs Triton.

A program of the attention computes a row's queries that share keys. All figures here are counted,
not measured, for 1.7B on an H200. Dot products are plain sums: two queries would leave seven
eighths of a tensor core's tile empty, and the 2 ms a frame that sums take for 256 rows of 1,024
positions hide behind the 7 ms of reading. Keys are not split over several programs. The 8 programs
of a lone row read 32 positions in about 1 µs: 0.2 ms a frame for 200 positions, of which a split
would save little more than its 28 launches more take; 0.9 ms for 1,024, and 4 ms for the 4,608 that
a row has at most, where it would pay. Agents' rows are short, and from 32 on their programs fill
the GPU.
"""

# What `triton.jit` compiles is in Triton's language: its releases type that differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.layers import HeadNorm, KVCache, Operations, RMSNorm, Rotation

_MOST_STEPS = 2
"""New positions of a row that the attention's kernel takes: a step's, and a frame's first two."""
_WARPS = 8
"""Of the attention."""
_THREAD_BYTES = 16
"""What a thread loads at once."""
_BLOCK_BYTES = 8_192
"""Keys that a program reads at once; as many values go along. They are held in registers, of which
two programs have enough on a multiprocessor, whichever release of Triton compiles them: 3.7 to 3.9
keep more of a block at a time than 3.6, and spilled from blocks of twice the size."""
_GATE_BLOCK = 1024
# `enable_fp_fusion`: releases of Triton from 3.10 on no longer fuse of themselves.
_NOTHING = tl.constexpr(-1e30)
"""A score that nothing has; finite, so that differences of two are."""


@triton.jit
def _add_norm(
    x, added, weight, total, normed, eps,
    HAS_ADDED: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A program a row; `WIDE` is the power of two that holds `WIDTH`."""
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
    """A program for a block of a row."""
    dtype = gate_up.dtype.element_ty
    row, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = place < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + place, is_in, 0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * WIDTH + place, is_in, 0.0).to(tl.float32)
    opened = (gate / (1 + tl.exp(-gate))).to(dtype).to(tl.float32)
    tl.store(gated + row * WIDTH + place, (opened * up).to(dtype), is_in)


@triton.jit
def _turn(heads, weight, cos, sin, is_in, eps, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Norm and rotate heads: pointers [N, 1] to each one's first number -> [N, WIDE] float32."""
    dtype = heads.dtype.element_ty
    place = tl.arange(0, WIDE)[None, :]
    opposite = (place + WIDTH // 2) % WIDTH  # the other component of the rotation
    here = tl.load(heads + place, is_in, 0.0).to(tl.float32)
    there = tl.load(heads + opposite, is_in, 0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(here * here, 1)[:, None] / WIDTH + eps)
    here = (here * scale).to(dtype).to(tl.float32)
    there = (there * scale).to(dtype).to(tl.float32)
    here = (here * tl.load(weight + place, is_in, 0.0).to(tl.float32)).to(dtype).to(tl.float32)
    there = (there * tl.load(weight + opposite, is_in, 0.0).to(tl.float32)).to(dtype)
    here = (here * tl.load(cos + place, is_in, 0.0).to(tl.float32)).to(dtype).to(tl.float32)
    there = there.to(tl.float32) * tl.load(sin + place, is_in, 0.0).to(tl.float32)
    return (here + there.to(dtype).to(tl.float32)).to(dtype).to(tl.float32)


# A pass of the code predictor may begin at any of a frame's positions.
@triton.jit(do_not_specialize_on_alignment=("positions",))
def _attend(
    heads, weight, cos, sin, keys, values, table, positions, attended,
    eps, scale, rotation_row, table_row, positions_row,
    STEPS: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    PAGE: tl.constexpr, LINES: tl.constexpr, NEW: tl.constexpr, WIDE: tl.constexpr,
    DEPTH: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """A program for the queries of a row that share keys: `LINES` of them, steps by heads.

    `LINES`, `NEW` and `WIDE` are the powers of two that hold the queries, the steps and a head.
    Earlier keys come in blocks of `DEPTH` by `SLOTS`. Each slot has a softmax of its own until the
    end: threads that hold other slots need not be waited for.
    """
    dtype = keys.dtype.element_ty
    share: tl.constexpr = QUERIES // GROUPS
    step_stride: tl.constexpr = (QUERIES + 2 * GROUPS) * WIDTH
    place_stride: tl.constexpr = GROUPS * WIDTH
    block: tl.constexpr = DEPTH * SLOTS
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heads += row * STEPS * step_stride
    cos += row * rotation_row
    sin += row * rotation_row
    table += row * table_row
    begin = tl.load(positions + row * positions_row).to(tl.int32)
    column = tl.arange(0, WIDE)
    is_column = (column < WIDTH)[None, :]

    line = tl.arange(0, LINES)
    of_step, head = line // share, group * share + line % share
    is_line = (of_step < STEPS)[:, None] & is_column
    turn = of_step[:, None] * WIDTH
    queries = _turn(
        heads + of_step[:, None] * step_stride + head[:, None] * WIDTH,
        weight + head[:, None] * WIDTH, cos + turn, sin + turn, is_line, eps, WIDTH, WIDE,
    )  # fmt: skip

    new = tl.arange(0, NEW)
    is_new = (new < STEPS)[:, None] & is_column
    turn = new[:, None] * WIDTH
    sources = heads + new[:, None] * step_stride + (QUERIES + group) * WIDTH
    new_keys = _turn(
        sources, weight + (QUERIES + group) * WIDTH, cos + turn, sin + turn, is_new, eps, WIDTH,
        WIDE,
    )  # fmt: skip
    new_values = tl.load(sources + place_stride + column[None, :], is_new, 0.0)
    place = begin + new
    page = tl.load(table + place // PAGE, new < STEPS, 0).to(tl.int64)
    goal = (page * PAGE + place % PAGE)[:, None] * place_stride + group * WIDTH + column[None, :]
    tl.store(keys + goal, new_keys.to(dtype), is_new)
    tl.store(values + goal, new_values, is_new)

    # All that follows is [LINES, SLOTS, DEPTH, WIDE], or one where it is the same.
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


class FusedOperations:
    """Each operation in one launch.

    Args:
        plain: for the attention of passes that are longer than a step.
    """

    def __init__(self, plain: Operations) -> None:
        self._plain = plain

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
        self, heads: Tensor, norm: HeadNorm, rotated: Rotation, memory: KVCache, layer: int
    ) -> Tensor:
        """See `Operations`."""
        rows, steps, count, width = heads.shape
        if steps > _MOST_STEPS:
            return self._plain.attend(heads, norm, rotated, memory, layer)
        heads, pages = heads.contiguous(), memory.pages(layer)
        queries, groups, page = norm.queries, count - len(norm.weight), pages.keys.shape[1]
        wide, lines = _power(width), _power(steps * (queries // groups))
        head_bytes = heads.element_size() * wide
        slots = min(_power(page), 32 * _WARPS * _THREAD_BYTES // head_bytes)
        block = min(_power(page), _BLOCK_BYTES // head_bytes)
        assert pages.keys.is_contiguous() and pages.values.is_contiguous(), "expected whole pages"
        assert page % block == 0 or page < block, f"a page of {page} has no whole blocks of {block}"
        attended = torch.empty_like(heads[:, :, :queries], memory_format=torch.contiguous_format)
        _attend[rows, groups](
            heads, norm.weight, rotated.cos, rotated.sin, pages.keys, pages.values, pages.table,
            pages.positions, attended, norm.eps, math.log2(math.e) / math.sqrt(width),
            rotated.cos.stride(0) if len(rotated.cos) > 1 else 0, pages.table.stride(0),
            pages.positions.stride(0), steps, queries, groups, width, page, lines, _power(steps),
            wide, block // slots, slots,
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
    """The smallest that is as large."""
    return 1 << (size - 1).bit_length()


def _warps(width: int) -> int:
    """Such that each thread has eight numbers, as a thread reads sixteen bytes at once."""
    return min(16, max(1, _power(width) // 256))
