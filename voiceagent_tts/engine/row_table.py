"""The host's table of all rows, and the records of it that a pass reads on the device.

The table consists of arrays, so that the host's work per step hardly depends on the number of rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.model.sampling import MIN_FRAMES, RowSettings, SamplingParams, uniforms

_NOISE_FRAMES = 32
"""Number of frames of a row for which random numbers are drawn at once."""
_SEED_BITS = 2**64 - 1
_ENDLESS = 2**62
"""Number of text ids, in effect infinite, of a row whose text is still being written."""


def record_type(codebooks: int, pages: int) -> np.dtype:
    """Return the layout of the record that a pass reads for each row: 32-bit numbers.

    `slot` is the row's index, `position` the next free position of the row, and `length` the number
    of prompt positions that a prefill adds. `frame` is the index of the frame being made, and
    `text` the text id that is added to it. `noise` has the random number for codebook 0 of the
    frame after it, followed by those for codebooks 1 to K - 1 of the frame itself. `may_end` says
    whether the frame after it may be the end of the sequence.
    """
    settings = [("is_sampled", "i4"), ("temperature", "f4"), ("top_k", "i4"), ("top_p", "f4")]
    return np.dtype(
        [
            *((name, "i4") for name in ("slot", "position", "frame", "length", "text", "may_end")),
            ("penalty", "f4"),
            ("talker", settings),
            ("predictor", settings),
            ("noise", "f4", (codebooks,)),
            ("pages", "i4", (pages,)),
        ]
    )


class RowTable:
    """Host state of all rows, as arrays by row.

    Attributes:
        records: records for the device, by `record_type`. The last one is the scratch row's, which
            pads batches.
        text: [R, capacity], text ids that are added to the frames.
        frames_left: [R], number of frames before the row's maximum.
        needs_all_text: [R], whether the row must be fed all of its text before it ends.
        is_over: [R], whether the row makes no more frames.
        noise: [R, F, K], random numbers of the frames from `noise_start` on.
        noise_start: [R], the first frame in `noise`.
        scratch: index of the scratch row.
    """

    def __init__(self, rows: int, capacity: int, codebooks: int, pages: int) -> None:
        self.records = np.zeros(rows + 1, record_type(codebooks, pages))
        self.records["slot"] = np.arange(rows + 1)
        self.records["penalty"] = self.records["length"] = 1
        for name in ("talker", "predictor"):
            self.records[name]["temperature"] = self.records[name]["top_p"] = 1.0
        self.text = np.zeros((rows, capacity), np.int32)
        self.text_ids = np.zeros(rows, np.int64)
        self.frames_left = np.zeros(rows, np.int64)
        self.pages = np.zeros(rows, np.int64)
        self.is_used, self.is_open, self.needs_all_text, self.is_over = (
            np.zeros(rows, bool) for _ in range(4)
        )
        self.noise = np.zeros((rows, _NOISE_FRAMES + 1, codebooks), np.float32)
        self.noise_start = np.zeros(rows, np.int64)
        self.seeds = np.zeros(rows, np.uint64)
        self.scratch = rows

    def join(self, row: int, sampling: SamplingParams, max_frames: int) -> None:
        """Start a row at frame 0, without text; call `begin` before its prompt is processed."""
        record = self.records[row : row + 1]
        record["frame"] = record["may_end"] = record["position"] = 0
        record["penalty"] = sampling.repetition_penalty
        for name, settings in (("talker", sampling.talker), ("predictor", sampling.predictor)):
            record[name]["is_sampled"] = settings.is_sampled
            record[name]["temperature"] = settings.temperature
            record[name]["top_k"] = settings.top_k
            record[name]["top_p"] = settings.top_p
        self.seeds[row] = sampling.seed & _SEED_BITS
        self.frames_left[row] = max_frames
        self.text_ids[row] = 0
        self.is_used[row], self.is_over[row] = True, False

    def begin(self, rows: np.ndarray) -> None:
        """Draw the first random numbers of rows that have joined."""
        self._draw(rows)
        self.records["noise"][rows, 0] = self.noise[rows, 0, 0]

    def write(self, row: int, text_ids: Sequence[int]) -> None:
        """Append text ids to a row; ids beyond its capacity are counted but never spoken."""
        start = int(self.text_ids[row])
        kept = list(text_ids)[: max(0, self.text.shape[1] - start)]
        self.text[row, start : start + len(kept)] = kept
        self.text_ids[row] += len(text_ids)

    def can_step(self, rows: np.ndarray) -> np.ndarray:
        """Return, for each of `rows`, whether it has frames left and the text for the next one."""
        is_starved = self.is_open[rows] & (self.records["frame"][rows] >= self.text_ids[rows])
        return self.is_used[rows] & ~self.is_over[rows] & ~is_starved

    def prepare(self, rows: np.ndarray, pad: int) -> None:
        """Fill the records of `rows` for their next frame; `pad` is the text id after the text."""
        records, frames = self.records, self.records["frame"][rows]
        # Rows that started together draw in different steps, so that no step is long.
        is_due = (frames > self.noise_start[rows]) & ((frames + rows) % _NOISE_FRAMES == 0)
        self._draw(rows[is_due])
        offsets = frames - self.noise_start[rows]
        records["noise"][rows] = self.noise[rows, offsets]
        records["noise"][rows, 0] = self.noise[rows, offsets + 1, 0]
        has_text = frames < self.text_ids[rows]
        beside = self.text[rows, np.minimum(frames, self.text.shape[1] - 1)]
        records["text"][rows] = np.where(has_text, beside, pad)
        records["may_end"][rows] = frames + 1 >= self._min_frames(rows)

    def padded(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Return the records of `rows`, padded to `count` with the record of the scratch row."""
        return self.records[np.append(rows, [self.scratch] * (count - len(rows))).astype(int)]

    def advance(self, rows: np.ndarray) -> None:
        """Move `rows` to their next frame."""
        self.records["position"][rows] += 1
        self.records["frame"][rows] += 1
        self.frames_left[rows] -= 1

    def _min_frames(self, rows: np.ndarray) -> np.ndarray:
        of_text = np.where(self.is_open[rows], _ENDLESS, self.text_ids[rows])
        return np.maximum(MIN_FRAMES, np.where(self.needs_all_text[rows], of_text, 0))

    def _draw(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        start = self.records["frame"][rows].astype(np.int64)
        frames = start[:, None] + np.arange(_NOISE_FRAMES + 1)
        self.noise_start[rows] = start
        self.noise[rows] = uniforms(self.seeds[rows], frames, self.noise.shape[-1])


class DeviceRecords:
    """View by field of records on the device: [B, N] int32, one per row of the batch."""

    def __init__(self, packed: Tensor, layout: np.dtype) -> None:
        # All fields are converted in one launch; what floats become as integers is never read.
        self._integers, self._floats = packed.long(), packed.view(torch.float32)
        self._layout = layout

    def integer(self, name: str) -> Tensor:
        """Return an integer field as [B] int64."""
        return self._integers[:, self._place(name)]

    def number(self, name: str) -> Tensor:
        """Return a float field as [B, 1] float32."""
        place = self._place(name)
        return self._floats[:, place : place + 1]

    @property
    def noise(self) -> Tensor:
        """Random numbers, [B, K] float32."""
        return self._floats[:, self._span("noise")]

    @property
    def table(self) -> Tensor:
        """Page tables, [B, n] int64."""
        return self._integers[:, self._span("pages")]

    def settings(self, name: str) -> RowSettings:
        """Return the sampling settings of `talker` or `predictor`."""
        start = self._place(name)
        is_sampled, temperature, top_k, top_p = range(start, start + 4)
        return RowSettings(
            self._integers[:, is_sampled : is_sampled + 1] > 0,
            self._floats[:, temperature : temperature + 1],
            self._integers[:, top_k : top_k + 1],
            self._floats[:, top_p : top_p + 1],
        )

    def _place(self, name: str) -> int:
        return self._span(name).start

    def _span(self, name: str) -> slice:
        fields: Any = self._layout.fields  # a mapping of literal names, to the type checker
        kind, start, *_ = fields[name]
        return slice(start // 4, (start + kind.itemsize) // 4)
