"""The sizes that calls come in: exact on a CPU, a few on a GPU, one where bits must not change.

A graph is captured for every size, and a call is filled up to the next one. Numbers only.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from voiceagent_tts.model.kv_pool import PAGE_POSITIONS

WINDOWS_FRAMES = (1, 2, 4, 8, 12)
"""How many frames of each row a call of the codec decodes; other numbers take several calls."""
FRAMES_A_CALL = 64
"""Of all rows together: enough to fill a large GPU, little enough to take little memory."""

_ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
_WINDOWS = (PAGE_POSITIONS, 2 * PAGE_POSITIONS, 4 * PAGE_POSITIONS)
_PROMPTS = (32, 128, 512)
_PROMPT_ROWS = (1, 2, 4)
_WINDOW = 64
"""Without graphs, keys are read in multiples of so many positions."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The sizes that passes come in, each ascending; a call takes the next that is large enough.

    Attributes:
        rows: of a step.
        windows: positions that a pass looks back over.
        prompts: positions of a prompt, or of a part of one: longer ones come in parts.
        prompt_rows: prompts that are taken in together.
        has_step_windows: whether a step comes in windows, too; fused kernels look back as far as
            each row has come, in one.
    """

    rows: Sequence[int]
    windows: Sequence[int]
    prompts: Sequence[int]
    prompt_rows: Sequence[int] = (1,)
    has_step_windows: bool = True

    @property
    def step_windows(self) -> Sequence[int]:
        """Windows of a step."""
        return self.windows if self.has_step_windows else self.windows[-1:]

    def takes_in(self, count: int, length: int, window: int) -> bool:
        """Whether prompts come in this shape: several at once only at their start."""
        is_whole = count == 1 or window == self.windows[0]
        return is_whole and length <= window and count * length <= self.prompts[-1]

    @property
    def positions(self) -> int:
        """The furthest that any pass looks or writes."""
        return self.windows[-1]


def fitting(sizes: Sequence[int], wanted: int) -> int:
    """The smallest of `sizes` that is `wanted` or more."""
    return sizes[bisect_left(sizes, wanted)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """All sizes, ascending.

    Attributes:
        talker: of the talker's and the code predictor's passes.
        codec: frames of each row in a call of the codec -> how many rows it takes.
    """

    talker: Shapes
    codec: Mapping[int, Sequence[int]]


def exact_shapes(rows: int, capacity: int) -> Shapes:
    """Every size as it comes: for passes that are not captured."""
    windows = range(_WINDOW, capacity + _WINDOW, _WINDOW)
    return Shapes(range(1, rows + 1), windows, range(1, capacity + 1))


def exact_sizes(rows: int, capacity: int) -> Sizes:
    """Every size as it comes: nothing is filled up."""
    codec = {frames: range(1, _most(rows, frames) + 1) for frames in WINDOWS_FRAMES}
    return Sizes(exact_shapes(rows, capacity), codec)


def graph_sizes(rows: int, capacity: int, *, has_step_windows: bool = True) -> Sizes:
    """Few enough to be captured when an engine starts.

    Below some hundred rows a pass reads weights for most of its time, so that places that are
    filled up cost little.

    Args:
        rows: of an engine.
        capacity: positions of a row.
        has_step_windows: as in `Shapes`.
    """
    prompts = _up_to(_PROMPTS, min(capacity, _PROMPTS[-1]))
    furthest = _whole_pages(capacity) + prompts[-1]  # a prompt's last part is filled up, too
    shapes = Shapes(
        _up_to(_ROWS, rows),
        (*(window for window in _WINDOWS if window < furthest), furthest),
        prompts,
        tuple(count for count in _PROMPT_ROWS if count <= rows),
        has_step_windows,
    )
    codec = {
        frames: _up_to(tuple(2**power for power in range(10)), _most(rows, frames))
        for frames in WINDOWS_FRAMES
    }
    return Sizes(shapes, codec)


def fixed_sizes(rows: int, capacity: int) -> Sizes:
    """One size for all, whatever runs: a row's bits depend on nothing else, at a cost."""
    few = graph_sizes(rows, capacity).talker
    shapes = Shapes((rows,), (few.positions,), few.prompts)
    return Sizes(shapes, {1: (_most(rows, 1),)})


def _most(rows: int, frames: int) -> int:
    return max(1, min(rows, FRAMES_A_CALL // frames))


def _up_to(sizes: Sequence[int], most: int) -> tuple[int, ...]:
    return (*(size for size in sizes if size < most), most)


def _whole_pages(positions: int) -> int:
    return -(-positions // PAGE_POSITIONS) * PAGE_POSITIONS
