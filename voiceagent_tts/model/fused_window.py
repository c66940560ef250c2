"""Triton kernel for the attention of the codec's decoder: one launch a layer.

It rotates queries and keys, stores keys and values in the ring of each row, and attends to the
frames in the window, read in place: no mask, no copy. As in PyTorch's kernels, the softmax is
computed in float32. Importing this module needs Triton.
"""

# Functions under `triton.jit` are in Triton's language, which its releases type differently.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOperatorIssue=false

import math

import triton
import triton.language as tl
from torch import Tensor

from voiceagent_tts.model.codec_state import DecodeCall
from voiceagent_tts.model.fused_prompt import KEYS_BYTES, add_block, rotate, side_of
from voiceagent_tts.model.layers import Rotation


@triton.jit
def _rotate(heads, cos, sin, is_in, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    """Rotate heads: pointers [N, 1] to their first numbers -> [N, WIDE] in their dtype."""
    place = tl.arange(0, WIDE)[None, :]
    opposite = (place + WIDTH // 2) % WIDTH  # the other component of the rotation
    here = tl.load(heads + place, is_in, 0.0).to(tl.float32)
    there = tl.load(heads + opposite, is_in, 0.0).to(tl.float32)
    return rotate(here, there, cos, sin, place, is_in, heads.dtype.element_ty)


@triton.jit
def _attend_window(
    heads, cos, sin, keys, values, rows, positions, attended, scale, ring, window,
    STEPS: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr,
    LINES: tl.constexpr, NEW: tl.constexpr, KEYS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Attend for the queries of one row that share keys: `LINES` of them, frames times heads.

    `LINES`, `NEW` and `WIDE` are the numbers of queries, frames and numbers per head, rounded up to
    sides of a product. Earlier keys are read in blocks of `KEYS`.
    """
    dtype = keys.dtype.element_ty
    share: tl.constexpr = QUERIES // GROUPS
    step_stride: tl.constexpr = (QUERIES + 2 * GROUPS) * WIDTH
    slot_stride: tl.constexpr = GROUPS * WIDTH
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heads += row * STEPS * step_stride
    cos += row * STEPS * WIDTH
    sin += row * STEPS * WIDTH
    stored = tl.load(rows + row)
    keys += stored * ring * slot_stride + group * WIDTH
    values += stored * ring * slot_stride + group * WIDTH
    begin = tl.load(positions + row * STEPS).to(tl.int32)
    column = tl.arange(0, WIDE)[None, :]
    is_column = column < WIDTH

    line = tl.arange(0, LINES)
    step, head = (line // share)[:, None], (group * share + line % share)[:, None]
    is_line = (step < STEPS) & is_column
    queries = _rotate(
        heads + step * step_stride + head * WIDTH, cos + step * WIDTH, sin + step * WIDTH,
        is_line, WIDTH, WIDE,
    )  # fmt: skip

    new = tl.arange(0, NEW)[:, None]
    is_new = (new < STEPS) & is_column
    sources = heads + new * step_stride + (QUERIES + group) * WIDTH
    new_keys = _rotate(sources, cos + new * WIDTH, sin + new * WIDTH, is_new, WIDTH, WIDE)
    new_values = tl.load(sources + slot_stride + column, is_new, 0.0)
    goal = ((begin + new) % ring) * slot_stride + column
    tl.store(keys + goal, new_keys, is_new)
    tl.store(values + goal, new_values, is_new)

    ahead = tl.arange(0, NEW)[None, :]
    scores = tl.dot(queries, tl.trans(new_keys), input_precision="ieee") * scale
    scores = tl.where((ahead <= step) & (ahead > step - window), scores, float("-inf"))
    highest = tl.max(scores, 1)  # finite: each frame sees itself
    shares = tl.exp2(scores - highest[:, None])
    total = tl.sum(shares, 1)
    gathered = tl.dot(shares.to(dtype), new_values, input_precision="ieee")

    # The slots of the new frames are never among those that are read here: the ring is longer than
    # the window by the most frames of a call.
    block = tl.arange(0, KEYS)
    for start in tl.range(tl.maximum(begin - window + 1, 0), begin, KEYS):
        place = start + block
        source = (place % ring)[:, None] * slot_stride + column
        is_in = (place < begin)[:, None] & is_column
        old_keys = tl.load(keys + source, is_in, 0.0)
        old_values = tl.load(values + source, is_in, 0.0)
        old_scores = tl.dot(queries, tl.trans(old_keys), input_precision="ieee") * scale
        is_seen = (place < begin)[None, :] & (place[None, :] > begin + step - window)
        old_scores = tl.where(is_seen, old_scores, float("-inf"))
        highest, total, gathered = add_block(old_scores, old_values, highest, total, gathered)

    goal = ((row * STEPS + step) * QUERIES + head) * WIDTH + column
    tl.store(attended + goal, (gathered / total[:, None]).to(dtype), is_line)


def attend_window(
    heads: Tensor, queries: int, rotated: Rotation, call: DecodeCall, layer: int
) -> Tensor:
    """Store keys and values in the state of `call`, and attend; see `AttendWindow`."""
    rows, steps, count, width = heads.shape
    groups, heads = (count - queries) // 2, heads.contiguous()
    keys, values = call.state.keys[layer], call.state.values[layer]
    assert keys.is_contiguous() and values.is_contiguous(), "expected contiguous rings"
    attended = heads.new_empty(rows, steps, queries, width)
    _attend_window[rows, groups](
        heads, rotated.cos, rotated.sin, keys, values, call.rows, call.positions, attended,
        math.log2(math.e) / math.sqrt(width), keys.shape[1], call.state.window_frames,
        steps, queries, groups, width, side_of(steps * (queries // groups)), side_of(steps),
        KEYS_BYTES // heads.itemsize, side_of(width),
        num_warps=4, num_stages=2, enable_fp_fusion=True,
    )  # fmt: skip
    return attended
