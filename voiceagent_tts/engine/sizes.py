"""Sizes of passes and codec calls: any on a CPU, a few on a GPU, one for identical bits.

On a GPU a graph is captured for every size, and a call is padded to the next one.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, pages_for

WINDOWS_FRAMES = (1, 2, 4, 8, 12)
"""Frames per row that a codec call can decode; other numbers take several calls."""
FRAMES_A_CALL = 64
"""Maximum frames of all rows in a codec call: enough to use a large GPU well, in little memory."""

_ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
_WINDOWS = (PAGE_POSITIONS, 2 * PAGE_POSITIONS, 4 * PAGE_POSITIONS)
_PROMPTS = (32, 128, 256, 512)
_PROMPT_ROWS = (1, 2, 4, 8, 16)
_WINDOW = 64
"""Without graphs, the window of a pass is a multiple of this many positions."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Sizes of passes, each ascending; a pass has the smallest size that is large enough.

    Attributes:
        rows: numbers of rows in a step.
        windows: numbers of positions that attention reads.
        prompts: positions of a prompt or of a part of one; longer prompts are split.
        prompt_rows: numbers of prompts that are prefilled together.
    """

    rows: Sequence[int]
    windows: Sequence[int]
    prompts: Sequence[int]
    prompt_rows: Sequence[int] = (1,)

    def allows_prefill(self, count: int, length: int, window: int) -> bool:
        """Whether prompts can be prefilled in this shape; several together only at their start."""
        is_whole = count == 1 or window == self.windows[0]
        return is_whole and length <= window and count * length <= self.prompts[-1]

    @property
    def positions(self) -> int:
        """Largest position that any pass reads or writes, plus one."""
        return self.windows[-1]


def fitting(sizes: Sequence[int], wanted: int) -> int:
    """Return the smallest of `sizes` that is at least `wanted`."""
    return sizes[bisect_left(sizes, wanted)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of all passes and codec calls.

    Attributes:
        talker: sizes of the talker's and the code predictor's passes.
        codec: numbers of rows in a codec call, ascending, by its frames per row.
    """

    talker: Shapes
    codec: Mapping[int, Sequence[int]]


def exact_shapes(rows: int, capacity: int) -> Shapes:
    """Return shapes of every size, for passes that are not captured."""
    windows = range(_WINDOW, capacity + _WINDOW, _WINDOW)
    return Shapes(range(1, rows + 1), windows, range(1, capacity + 1))


def exact_sizes(rows: int, capacity: int) -> Sizes:
    """Return every size, so that nothing is padded."""
    codec = {frames: range(1, _most(rows, frames) + 1) for frames in WINDOWS_FRAMES}
    return Sizes(exact_shapes(rows, capacity), codec)


def graph_sizes(rows: int, capacity: int, *, has_windows: bool = True) -> Sizes:
    """Return sizes few enough to be captured when an engine starts.

    Below a few hundred rows a pass spends most of its time on reading weights, so that padding
    costs little. Without `has_windows` a pass has one window: fused kernels read as many positions
    as each row has.
    """
    prompts = _up_to(_PROMPTS, min(capacity, _PROMPTS[-1]))
    # The last part of a prompt is padded, too.
    furthest = pages_for(capacity) * PAGE_POSITIONS + prompts[-1]
    shorter = (window for window in _WINDOWS if has_windows and window < furthest)
    shapes = Shapes(
        _up_to(_ROWS, rows),
        (*shorter, furthest),
        prompts,
        tuple(count for count in _PROMPT_ROWS if count <= rows),
    )
    codec = {
        frames: _up_to(tuple(2**power for power in range(10)), _most(rows, frames))
        for frames in WINDOWS_FRAMES
    }
    return Sizes(shapes, codec)


def fixed_sizes(rows: int, capacity: int) -> Sizes:
    """Return one size for all calls, so that a row's bits do not depend on other rows; slower."""
    few = graph_sizes(rows, capacity).talker
    shapes = Shapes((rows,), (few.positions,), few.prompts)
    return Sizes(shapes, {1: (_most(rows, 1),)})


def _most(rows: int, frames: int) -> int:
    return max(1, min(rows, FRAMES_A_CALL // frames))


def _up_to(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    return (*(size for size in sizes if size < most), most)
