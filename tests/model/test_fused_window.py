"""The codec's fused attention gives PyTorch's results and keys, for rings in any state.

Kernels run in Triton's interpreter, and are compiled for a GPU that this machine lacks.
"""

import random

import pytest
import torch
from torch import Tensor

from testbed.triton_here import Run
from voiceagent_tts.model.codec_state import CodecState, DecodeCall
from voiceagent_tts.model.codec_transformer import AttendWindow, attend_window
from voiceagent_tts.model.kernels import TOLERANCES
from voiceagent_tts.model.layers import inverse_frequencies, rotation

pytestmark = pytest.mark.xdist_group("fused")


def fused_attention() -> AttendWindow:
    from voiceagent_tts.model import fused_window

    return fused_window.attend_window


def new_state(
    rows: int, window: int, frames: int, groups: int, width: int, dtype: torch.dtype
) -> CodecState:
    cache = torch.zeros(1, rows, window - 1 + frames, groups, width, dtype=dtype)
    positions, history = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, 0)
    return CodecState(positions, cache, cache.clone(), history, (), window)


def attended(kernels: str, dtype: torch.dtype, seed: int) -> list[Tensor]:
    """What random calls of random rows attend to, and the keys and values that they leave."""
    attend = attend_window if kernels == "plain" else fused_attention()
    choices, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    groups, share = choices.randint(1, 2), choices.randint(1, 3)
    width, window, most = 2 * choices.randint(2, 10), choices.randint(1, 40), choices.randint(1, 12)
    state = new_state(4, window, most, groups, width, dtype)
    state.positions.copy_(torch.tensor([choices.randrange(100) for _ in range(4)]))
    results = list[Tensor]()
    for tensor in (state.keys, state.values):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    for number in range(4):
        rows = torch.tensor(choices.sample(range(4), 4 if number == 3 else choices.randint(1, 3)))
        call = DecodeCall(state, choices.randint(1, most), rows)
        shape = (*call.positions.shape, groups * (share + 2), width)
        heads = torch.randn(shape, generator=generator).to(dtype)
        rotated = rotation(call.positions, inverse_frequencies(width, 1e4), dtype)
        results.append(attend(heads, groups * share, rotated, call, 0))
        call.advance()
    return [*results, state.keys, state.values]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_fused_attention_is_plain_attention(
    run_interpreted: Run, seed: int, dtype: torch.dtype
) -> None:
    """Rows at any positions, whose rings wrap, attend to the frames of their windows alone."""
    found, expected = (
        run_interpreted(attended, "fused", dtype, seed),
        attended("plain", dtype, seed),
    )
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype and one.shape == other.shape
        off = (one.float() - other.float()).abs().max()
        assert off <= TOLERANCES[dtype] * other.float().abs().max()
