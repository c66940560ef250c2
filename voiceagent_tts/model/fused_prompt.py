"""Triton kernels for the attention of a prompt: two launches, whatever its length.

One writes the prompt's keys and values into the row's pages; the other attends to the pages as far
as each query sees, with no window, no mask and no copy. Blocks of queries are products of tensor
cores. As in PyTorch's kernels, the softmax is computed in float32 and its shares are rounded
before they weigh the values. Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.attention import Pages
from voiceagent_tts.model.layers import HeadNorm, Rotation

_SMALLEST_SIDE = 16
"""Smallest side of a product of tensor cores."""
_LINES_BYTES = 128
"""Queries of a program, times the bytes of a number: 64 in bfloat16, 32 in float32, which would
spill registers with more. Queries are steps times the heads that share keys."""
KEYS_BYTES = 64
"""Keys that a program reads at once, times the bytes of a number."""
NOTHING = tl.constexpr(-1e30)
"""Initial maximum of the scores, below any real score. Finite, so a difference of two is finite."""


@triton.jit
def add_block(scores, values, highest, total, gathered):
    """Take a block of keys into a softmax that is computed block by block.

    Scores [N, K] are in powers of 2; values: [K, WIDE]. Returns the highest score so far [N], the
    sum of the shares [N], and the weighed values [N, WIDE], all three as they were given.
    Source: the online softmax of Milakov and Gimelshein (2018).
    """
    higher = tl.maximum(highest, tl.max(scores, 1))
    shares, kept = tl.exp2(scores - higher[:, None]), tl.exp2(highest - higher)
    brought = tl.dot(shares.to(values.dtype), values, input_precision="ieee")
    return higher, total * kept + tl.sum(shares, 1), gathered * kept[:, None] + brought


@triton.jit
def rotate(here, there, cos, sin, place, is_in, DTYPE: tl.constexpr):
    """Rotate [N, WIDE] float32: each number and the other component; the result is in `DTYPE`."""
    here = (here * tl.load(cos + place, is_in, 0.0).to(tl.float32)).to(DTYPE).to(tl.float32)
    there = (there * tl.load(sin + place, is_in, 0.0).to(tl.float32)).to(DTYPE).to(tl.float32)
    return (here + there).to(DTYPE)


@triton.jit
def turn(heads, weight, cos, sin, is_in, eps, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Normalise and rotate heads: pointers [N, 1] to their first numbers -> [N, WIDE] float32."""
    dtype = heads.dtype.element_ty
    place = tl.arange(0, WIDE)[None, :]
    opposite = (place + WIDTH // 2) % WIDTH  # the other component of the rotation
    here = tl.load(heads + place, is_in, 0.0).to(tl.float32)
    there = tl.load(heads + opposite, is_in, 0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(here * here, 1)[:, None] / WIDTH + eps)
    here = (here * scale).to(dtype).to(tl.float32)
    there = (there * scale).to(dtype).to(tl.float32)
    here = (here * tl.load(weight + place, is_in, 0.0).to(tl.float32)).to(dtype).to(tl.float32)
    there = (there * tl.load(weight + opposite, is_in, 0.0).to(tl.float32)).to(dtype).to(tl.float32)
    return rotate(here, there, cos, sin, place, is_in, dtype).to(tl.float32)


# Prompts of all lengths run the same code, and so does the check at the start.
@triton.jit(
    do_not_specialize=("rotation_places", "table_row", "positions_row", "steps"),
    do_not_specialize_on_alignment=("table", "positions"),
)
def _write_heads(
    heads, weight, cos, sin, keys, values, table, positions, turned,
    eps, rotation_places, table_row, positions_row, steps,
    QUERIES: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    PAGE: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Normalise and rotate the heads of one position; write queries, and the pages.

    `HEADS` is the number of queries and keys, rounded up to a power of two.
    """
    row, step = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    heads += (row * steps + step) * (QUERIES + 2 * GROUPS) * WIDTH
    turned += (row * steps + step) * QUERIES * WIDTH
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDE)[None, :]
    is_query, is_key = head < QUERIES, (head >= QUERIES) & (head < QUERIES + GROUPS)
    is_in = column < WIDTH
    angle = (row * rotation_places + step) * WIDTH
    result = turn(
        heads + head * WIDTH, weight + head * WIDTH, cos + angle, sin + angle,
        (is_query | is_key) & is_in, eps, WIDTH, WIDE,
    ).to(turned.dtype.element_ty)  # fmt: skip
    tl.store(turned + head * WIDTH + column, result, is_query & is_in)

    place = tl.load(positions + row * positions_row + step).to(tl.int32)
    page = tl.load(table + row * table_row + place // PAGE).to(tl.int64)
    goal = (page * PAGE + place % PAGE) * GROUPS * WIDTH + (head - QUERIES) * WIDTH + column
    tl.store(keys + goal, result, is_key & is_in)
    new_values = tl.load(heads + (GROUPS + head) * WIDTH + column, is_key & is_in, 0.0)
    tl.store(values + goal, new_values, is_key & is_in)


@triton.jit(
    do_not_specialize=("table_row", "positions_row", "steps"),
    do_not_specialize_on_alignment=("table", "positions"),
)
def _attend_prompt(
    turned, keys, values, table, positions, attended, scale, table_row, positions_row, steps,
    QUERIES: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    PAGE: tl.constexpr, LINES: tl.constexpr, KEYS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Attend for `LINES` queries of one row that share keys, to their own position and before."""
    dtype = keys.dtype.element_ty
    share: tl.constexpr = QUERIES // GROUPS
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    turned += row * steps * QUERIES * WIDTH
    attended += row * steps * QUERIES * WIDTH
    table += row * table_row
    begin = tl.load(positions + row * positions_row).to(tl.int32)
    line = tl.program_id(2) * LINES + tl.arange(0, LINES)
    step, column = line // share, tl.arange(0, WIDE)
    source = (step * QUERIES + group * share + line % share)[:, None] * WIDTH + column[None, :]
    is_line = (step < steps)[:, None] & (column < WIDTH)[None, :]
    queries = tl.load(turned + source, is_line, 0.0)

    highest = tl.full([LINES], NOTHING, tl.float32)
    total = tl.zeros([LINES], tl.float32)
    gathered = tl.zeros([LINES, WIDE], tl.float32)
    last_step = tl.minimum((tl.program_id(2) * LINES + LINES - 1) // share, steps - 1)
    end = begin + last_step + 1
    ahead = tl.arange(0, KEYS)
    for start in tl.range(0, end, KEYS):
        page = tl.load(table + start // PAGE).to(tl.int64)
        place = (page * PAGE + start % PAGE + ahead) * GROUPS * WIDTH + group * WIDTH
        is_seen = start + ahead < end
        is_in = is_seen[:, None] & (column < WIDTH)[None, :]
        old_keys = tl.load(keys + place[:, None] + column[None, :], is_in, 0.0)
        old_values = tl.load(values + place[:, None] + column[None, :], is_in, 0.0)
        scores = tl.dot(queries, tl.trans(old_keys), input_precision="ieee") * scale
        is_visible = (start + ahead)[None, :] <= (begin + step)[:, None]
        scores = tl.where(is_visible, scores, float("-inf"))
        highest, total, gathered = add_block(scores, old_values, highest, total, gathered)
    tl.store(attended + source, (gathered / total[:, None]).to(dtype), is_line)


def attend_prompt(heads: Tensor, norm: HeadNorm, rotated: Rotation, pages: Pages) -> Tensor:
    """Store keys and values of new positions in `pages`, and attend; as `Operations.attend`."""
    rows, steps, count, width = heads.shape
    heads, queries = heads.contiguous(), norm.queries
    groups, page = count - len(norm.weight), pages.keys.shape[1]
    wide, block = side_of(width), min(KEYS_BYTES // heads.itemsize, page)
    assert pages.keys.is_contiguous() and pages.values.is_contiguous(), "expected contiguous pages"
    assert page % block == 0, f"pages of {page}, blocks of {block}"
    turned = torch.empty_like(heads[:, :, :queries], memory_format=torch.contiguous_format)
    _write_heads[rows, steps](
        heads, norm.weight, rotated.cos, rotated.sin, pages.keys, pages.values, pages.table,
        pages.positions, turned, norm.eps, places_of(rotated),
        pages.table.stride(0), pages.positions.stride(0), steps, queries, groups, width, page,
        triton.next_power_of_2(len(norm.weight)), wide,
        num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    lines = steps * (queries // groups)
    most_lines = _LINES_BYTES // heads.itemsize
    block_lines = min(most_lines, side_of(lines))
    attended = torch.empty_like(turned)
    _attend_prompt[rows, groups, triton.cdiv(lines, block_lines)](
        turned, pages.keys, pages.values, pages.table, pages.positions, attended,
        math.log2(math.e) / math.sqrt(width), pages.table.stride(0), pages.positions.stride(0),
        steps, queries, groups, width, page, block_lines, block, wide,
        num_warps=4, num_stages=2, enable_fp_fusion=True,
    )  # fmt: skip
    return attended


def places_of(rotated: Rotation) -> int:
    """Return the number of positions between the rotations of two rows; 0 if all share theirs."""
    return rotated.cos.stride(0) // rotated.cos.shape[-1] if len(rotated.cos) > 1 else 0


def side_of(size: int) -> int:
    """Return the smallest side of a product of tensor cores that holds `size` numbers."""
    return max(_SMALLEST_SIDE, triton.next_power_of_2(size))
