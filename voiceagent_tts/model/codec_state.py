"""What the codec's decoder remembers of every row: a value, written in place.

A causal convolution needs its last inputs, attention the keys and values of the frames in its
window. With these, frames can be decoded in any portions, each once. Rows are independent: each
has its own position and may pause or start again while others go on. Shapes depend on the numbers
of rows and frames alone, and nothing here waits for the device. Knows no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.model.layers import Keys


@dataclass(frozen=True, slots=True)
class CodecState:
    """The left context of every row.

    Attributes:
        positions: [B] int64, frames decoded.
        keys: [L, B, R + 1, Hkv, D], rotated. The frame at position p lies in slot p mod R; in the
            slot after the ring lies what rows that pause would have written.
        values: as `keys`.
        histories: of each convolution its last inputs [B, reach, C], in the decoder's order.
        window_frames: frames that attention sees, the current one included.
    """

    positions: Tensor
    keys: Tensor
    values: Tensor
    histories: tuple[Tensor, ...]
    window_frames: int

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self.keys.shape[1]

    @property
    def ring_frames(self) -> int:
        """Frames whose keys are kept."""
        return self.keys.shape[2] - 1

    @property
    def max_frames(self) -> int:
        """How many frames one call can decode: what the window does not need of the ring."""
        return self.ring_frames - self.window_frames + 1

    @property
    def bytes(self) -> int:
        """Memory of all rows."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def reset(self, rows: Tensor | Sequence[int]) -> None:
        """Start `rows` again: what they decode next follows nothing.

        Keys and values may stay: those of positions that were not decoded are never seen.
        """
        index = torch.as_tensor(rows, dtype=torch.int64, device=self.positions.device)
        for tensor in (self.positions, *self.histories):
            tensor.index_fill_(0, index, 0)

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
        for history, other in zip(self.histories, source.histories, strict=True):
            history[row].copy_(other[source_row])

    def to(self, device: torch.device | str) -> "CodecState":
        """A copy of this state on `device`."""
        return CodecState(
            self.positions.to(device, copy=True),
            self.keys.to(device, copy=True),
            self.values.to(device, copy=True),
            tuple(history.to(device, copy=True) for history in self.histories),
            self.window_frames,
        )

    def _tensors(self) -> tuple[Tensor, ...]:
        return (self.positions, self.keys, self.values, *self.histories)


class Past:
    """The state during one call: what precedes its frames, and where they are remembered.

    Args:
        state: written in place.
        frames: F, how many frames every row is given.
        active: [B] bool, rows that go on; the others keep their state. None: all.
    """

    def __init__(self, state: CodecState, frames: int, active: Tensor | None) -> None:
        self._state, self._frames, self._active = state, frames, active
        device = state.positions.device
        self.positions = state.positions[:, None] + torch.arange(frames, device=device)  # [B, F]
        slots = self.positions % state.ring_frames
        if active is not None:
            slots = torch.where(active[:, None], slots, state.ring_frames)
        self._place = (torch.arange(state.rows, device=device)[:, None], slots)
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
        ring = self._state.ring_frames
        return Keys(of_keys[:, :ring], of_values[:, :ring], lengths=ring, mask=self._mask)

    def precede(self, number: int, x: Tensor) -> Tensor:
        """A convolution's new inputs [B, T, C] after its last ones: [B, reach + T, C].

        Args:
            number: of the convolution in the decoder's order.
            x: inputs, of which the last are remembered.
        """
        history = self._state.histories[number]
        inputs = torch.cat((history, x), dim=1)
        self._keep(history, inputs[:, x.shape[1] :])
        return inputs

    def advance(self) -> None:
        """The frames are decoded: the next call's follow them."""
        self._keep(self._state.positions, self._state.positions + self._frames)

    def _keep(self, old: Tensor, new: Tensor) -> None:
        if self._active is not None:
            new = torch.where(self._active.view(-1, *[1] * (old.ndim - 1)), new, old)
        old.copy_(new)
