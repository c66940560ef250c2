"""Streaming state of the codec's decoder for every row, written in place.

A causal convolution needs its last inputs, and attention the keys and values of the frames in its
window. With these, frames can be decoded in portions of any size, each frame once. Rows are
independent: each has its own position, and a call may decode a subset of them. Shapes depend only
on the numbers of rows and frames, and nothing here waits for the device.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from voiceagent_tts.model.attention import Keys


@dataclass(frozen=True, slots=True)
class History:
    """Location of a convolution's last inputs in a row's history: [reach, channels] at `start`."""

    start: int
    reach: int
    channels: int


@dataclass(frozen=True, slots=True)
class CodecState:
    """Left context of every row.

    Attributes:
        positions: [B] int64, number of decoded frames.
        keys: [L, B, R, Hkv, D], rotated; a ring buffer with position p in slot p mod R.
        values: [L, B, R, Hkv, D], in the slots of `keys`.
        history: [B, N], the last inputs of all convolutions.
        layout: location of each convolution's inputs in a row's history, in the decoder's order.
        window_frames: attention window in frames, including the current one.
    """

    positions: Tensor
    keys: Tensor
    values: Tensor
    history: Tensor
    layout: tuple[History, ...]
    window_frames: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.shape[1]

    @property
    def ring_frames(self) -> int:
        """Number of frames in the ring buffer of keys."""
        return self.keys.shape[2]

    @property
    def max_frames(self) -> int:
        """Maximum frames per call: the part of the ring that the window does not need."""
        return self.ring_frames - self.window_frames + 1

    @property
    def bytes(self) -> int:
        """Memory of all rows in bytes."""
        tensors = self.positions, self.keys, self.values, self.history
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def convolution_inputs(self, number: int) -> Tensor:
        """Return [B, reach, channels], the last inputs of a convolution."""
        place = self.layout[number]
        part = self.history[:, place.start : place.start + place.reach * place.channels]
        return part.unflatten(1, (place.reach, place.channels))

    def reset(self, row: int) -> None:
        """Clear the left context of `row`.

        Keys and values may stay: the mask hides positions that were not decoded.
        """
        self.positions[row].zero_()
        self.history[row].zero_()

    def copy_row(self, row: int, source: "CodecState") -> None:
        """Copy the only row of `source`, which has the same layout, to `row`."""
        assert source.ring_frames == self.ring_frames, (source.ring_frames, self.ring_frames)
        self.keys[:, row].copy_(source.keys[:, 0])
        self.values[:, row].copy_(source.values[:, 0])
        self.positions[row].copy_(source.positions[0])
        self.history[row].copy_(source.history[0])


class DecodeCall:
    """Reads and updates a `CodecState` during one call of the decoder.

    Args:
        state: left context; written in place.
        frames: F, new frames of every decoded row.
        rows: [B] int64, rows of `state` to decode; the others keep their state.
    """

    def __init__(self, state: CodecState, frames: int, rows: Tensor) -> None:
        self.state, self.rows = state, rows
        device = state.positions.device
        self.positions = self._select(state.positions)[:, None] + torch.arange(
            frames, device=device
        )  # [B, F]

    @cached_property
    def _place(self) -> tuple[Tensor, Tensor]:
        """Rows [B, 1] and slots [B, F] of the new keys."""
        return self.rows[:, None], self.positions % self.state.ring_frames

    @cached_property
    def _mask(self) -> Tensor:
        """Return the mask [B, 1, F, R] to add to scores; it hides slots outside the window."""
        ring = self.state.ring_frames
        last = self.positions[:, -1:]
        slots = (
            last - (last - torch.arange(ring, device=last.device)) % ring
        )  # [B, R] position in each slot
        age = self.positions[:, :, None] - slots[:, None]
        is_hidden = (age < 0) | (age >= self.state.window_frames) | (slots < 0)[:, None]
        zeros = self.state.keys.new_zeros(is_hidden.shape)
        return zeros.masked_fill_(is_hidden, float("-inf"))[:, None]

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Keys:
        """Store the new keys and values ([B, F, Hkv, D]); return everything the frames may see."""
        layer_keys, layer_values = self.state.keys[layer], self.state.values[layer]
        layer_keys.index_put_(self._place, keys)
        layer_values.index_put_(self._place, values)
        return Keys(
            self._select(layer_keys),
            self._select(layer_values),
            lengths=self.state.ring_frames,
            mask=self._mask,
        )

    def store_history(self, number: int, inputs: Tensor) -> None:
        """Store the last inputs of a convolution ([B, reach, C]) for the next call."""
        self._store(self.state.convolution_inputs(number), inputs)

    def prepend_history(self, number: int, x: Tensor) -> Tensor:
        """Prepend a convolution's last inputs to new ones: [B, T, C] -> [B, reach + T, C].

        The last new inputs are stored for the next call. Convolutions are numbered in the decoder's
        order.
        """
        inputs = torch.cat((self._select(self.state.convolution_inputs(number)), x), dim=1)
        self.store_history(number, inputs[:, x.shape[1] :])
        return inputs

    def taps(self, number: int, x: Tensor, kernel: int, dilation: int) -> Tensor:
        """Gather the inputs of each output of a convolution: [B, T, C] -> [B, T, kernel * C].

        Taps are `dilation` positions apart. The last inputs are stored for the next call.
        """
        length, reach = x.shape[1], (kernel - 1) * dilation
        x = self.prepend_history(number, x)
        starts = range(0, reach + 1, dilation)
        return torch.cat([x[:, start : start + length] for start in starts], dim=-1)

    def advance(self) -> None:
        """Advance the positions by the decoded frames."""
        self._store(self.state.positions, self.positions[:, -1] + 1)

    def _select(self, held: Tensor) -> Tensor:
        return held.index_select(0, self.rows)

    def _store(self, held: Tensor, new: Tensor) -> None:
        held.index_copy_(0, self.rows, new)
