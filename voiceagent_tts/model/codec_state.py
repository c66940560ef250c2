"""What the codec's decoder remembers of every row: a value, written in place.

A causal convolution needs its last inputs, attention the keys and values of the frames in its
window. With these, frames can be decoded in any portions, each once. Rows are independent: each
has its own position, and a call takes those that go on. Shapes depend on the numbers of rows and
frames alone, and nothing here waits for the device. Knows no weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.model.attention import Keys


@dataclass(frozen=True, slots=True)
class History:
    """Where a convolution's last inputs lie in a row's history: [reach, channels] from `start`."""

    start: int
    reach: int
    channels: int


@dataclass(frozen=True, slots=True)
class CodecState:
    """The left context of every row.

    Attributes:
        positions: [B] int64, frames decoded.
        keys: [L, B, R, Hkv, D], rotated. The frame at position p lies in slot p mod R.
        values: as `keys`.
        history: [B, N], the last inputs of all convolutions.
        layout: of a row's history, convolutions in the decoder's order.
        window_frames: frames that attention sees, the current one included.
    """

    positions: Tensor
    keys: Tensor
    values: Tensor
    history: Tensor
    layout: tuple[History, ...]
    window_frames: int

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self.keys.shape[1]

    @property
    def ring_frames(self) -> int:
        """Frames whose keys are kept."""
        return self.keys.shape[2]

    @property
    def max_frames(self) -> int:
        """How many frames one call can decode: what the window does not need of the ring."""
        return self.ring_frames - self.window_frames + 1

    @property
    def bytes(self) -> int:
        """Memory of all rows."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def of_convolution(self, number: int) -> Tensor:
        """[B, reach, channels], the last inputs of a convolution."""
        place = self.layout[number]
        part = self.history[:, place.start : place.start + place.reach * place.channels]
        return part.unflatten(1, (place.reach, place.channels))

    def reset(self, row: int) -> None:
        """Start `row` again: what it decodes next follows nothing.

        Keys and values may stay: those of positions that were not decoded are never seen.
        """
        self.positions[row].zero_()
        self.history[row].zero_()

    def copy_row(self, row: int, source: "CodecState", source_row: int) -> None:
        """Let `row` go on where a row of `source` is, which stays as it is.

        Raises:
            ValueError: `source` has another layout.
        """
        if source.ring_frames != self.ring_frames:
            raise ValueError(
                f"a state of {source.max_frames} frames a call cannot be copied to one of "
                f"{self.max_frames}"
            )
        self.keys[:, row].copy_(source.keys[:, source_row])
        self.values[:, row].copy_(source.values[:, source_row])
        self.positions[row].copy_(source.positions[source_row])
        self.history[row].copy_(source.history[source_row])

    def to(self, device: torch.device | str) -> "CodecState":
        """A copy of this state on `device`."""
        positions, keys, values, history = (
            tensor.to(device, copy=True) for tensor in self._tensors()
        )
        return CodecState(positions, keys, values, history, self.layout, self.window_frames)

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (self.positions, self.keys, self.values, self.history)


class Past:
    """The state during one call: what precedes its frames, and where they are remembered.

    Args:
        state: written in place.
        frames: F, how many frames every row is given.
        rows: [B] int64, rows of `state` that go on; the others keep their state. None: all.
    """

    def __init__(self, state: CodecState, frames: int, rows: Tensor | None) -> None:
        self._state, self._frames, self._rows = state, frames, rows
        device = state.positions.device
        self.positions = self._of_rows(state.positions)[:, None] + torch.arange(
            frames, device=device
        )  # [B, F]
        index = torch.arange(state.rows, device=device) if rows is None else rows
        self._place = (index[:, None], self.positions % state.ring_frames)
        self._mask = self._hide()

    def _hide(self) -> Tensor:
        """[B, 1, F, R] to be added to scores: which slots a frame does not see."""
        ring = self._state.ring_frames
        last = self.positions[:, -1:]
        held = last - (last - torch.arange(ring, device=last.device)) % ring  # [B, R] positions
        age = self.positions[:, :, None] - held[:, None]
        is_hidden = (age < 0) | (age >= self._state.window_frames) | (held < 0)[:, None]
        zeros = self._state.keys.new_zeros(is_hidden.shape)
        return zeros.masked_fill_(is_hidden, float("-inf"))[:, None]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        """Remember the frames' keys and values ([B, F, Hkv, D]); return all that they may see."""
        of_keys, of_values = self._state.keys[layer], self._state.values[layer]
        of_keys.index_put_(self._place, keys)
        of_values.index_put_(self._place, values)
        return Keys(
            self._of_rows(of_keys),
            self._of_rows(of_values),
            lengths=self._state.ring_frames,
            mask=self._mask,
        )

    def precede(self, number: int, x: Tensor) -> Tensor:
        """A convolution's new inputs [B, T, C] after its last ones: [B, reach + T, C].

        Args:
            number: of the convolution in the decoder's order.
            x: inputs, of which the last are remembered.
        """
        history = self._state.of_convolution(number)
        inputs = torch.cat((self._of_rows(history), x), dim=1)
        self._keep(history, inputs[:, x.shape[1] :])
        return inputs

    def advance(self) -> None:
        """The frames are decoded: the next call's follow them."""
        self._keep(self._state.positions, self.positions[:, -1] + 1)

    def _of_rows(self, held: Tensor) -> Tensor:
        return held if self._rows is None else held.index_select(0, self._rows)

    def _keep(self, held: Tensor, new: Tensor) -> None:
        if self._rows is None:
            held.copy_(new)
        else:
            held.index_copy_(0, self._rows, new)
