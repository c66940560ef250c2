"""What the host knows of every row, and the form in which a pass reads it on the device.

Numbers and text ids, kept as arrays so that a step costs the same work however many rows there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.model.sampling import MIN_FRAMES, RowSettings, SamplingParams, uniforms

_NOISE_FRAMES = 32
"""Random numbers are drawn for so many frames of a row at once."""
_ENDLESS = 2**62


def record_type(codebooks: int, pages: int) -> np.dtype:
    """What the host tells a pass of each row: 32-bit numbers, as one row of a matrix.

    `slot` is the row's number, `position` where its next one goes, `frame` the number of the frame
    that it makes; `text` goes beside that frame. `noise` holds the random numbers of that frame's
    codebooks 1 and up, and first that of codebook 0 of the frame after it, which `may_end`.
    """
    settings = [("is_sampled", "i4"), ("temperature", "f4"), ("top_k", "i4"), ("top_p", "f4")]
    return np.dtype(
        [
            ("slot", "i4"),
            ("position", "i4"),
            ("frame", "i4"),
            ("length", "i4"),
            ("text", "i4"),
            ("may_end", "i4"),
            ("penalty", "f4"),
            ("talker", settings),
            ("predictor", settings),
            ("noise", "f4", (codebooks,)),
            ("pages", "i4", (pages,)),
        ]
    )


class RowTable:
    """What the host knows of every row: arrays by row.

    `records` has one row more, for places of a batch that no row takes.
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
        self.seeds = [0] * rows

    def join(self, row: int, sampling: SamplingParams, max_frames: int) -> None:
        """Begin a row at frame 0, without text."""
        record = self.records[row : row + 1]
        record["frame"] = record["may_end"] = record["position"] = 0
        record["penalty"] = sampling.repetition_penalty
        for name, settings in (("talker", sampling.talker), ("predictor", sampling.predictor)):
            record[name]["is_sampled"] = settings.is_sampled
            record[name]["temperature"] = settings.temperature
            record[name]["top_k"] = settings.top_k
            record[name]["top_p"] = settings.top_p
        self.seeds[row] = sampling.seed
        self.frames_left[row] = max_frames
        self.text_ids[row] = 0
        self.is_used[row], self.is_over[row] = True, False
        self._draw(row, 0)
        record["noise"][:, 0] = self.noise[row, 0, 0]

    def write(self, row: int, text_ids: Sequence[int]) -> None:
        """More text of a row; what lies beyond its most frames is never spoken."""
        start = int(self.text_ids[row])
        kept = list(text_ids)[: max(0, self.text.shape[1] - start)]
        self.text[row, start : start + len(kept)] = kept
        self.text_ids[row] += len(text_ids)

    def can_step(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of `rows` has frames left and the text for the next one."""
        is_starved = self.is_open[rows] & (self.records["frame"][rows] >= self.text_ids[rows])
        return self.is_used[rows] & ~self.is_over[rows] & ~is_starved

    def prepare(self, rows: np.ndarray, pad: int) -> None:
        """Complete the records of rows for the frame that they make now."""
        records, frames = self.records, self.records["frame"][rows]
        offsets = frames % _NOISE_FRAMES
        for row in rows[(offsets == 0) & (frames > 0)]:
            self._draw(row, int(records["frame"][row]))
        records["noise"][rows] = self.noise[rows, offsets]
        records["noise"][rows, 0] = self.noise[rows, offsets + 1, 0]
        has_text = frames < self.text_ids[rows]
        beside = self.text[rows, np.minimum(frames, self.text.shape[1] - 1)]
        records["text"][rows] = np.where(has_text, beside, pad)
        records["may_end"][rows] = frames + 1 >= self._min_frames(rows)

    def advance(self, rows: np.ndarray) -> None:
        """The frames are made."""
        self.records["position"][rows] += 1
        self.records["frame"][rows] += 1
        self.frames_left[rows] -= 1

    def _min_frames(self, rows: np.ndarray) -> np.ndarray:
        """The least that each makes: as many as take all of its text, where it must have that."""
        of_text = np.where(self.is_open[rows], _ENDLESS, self.text_ids[rows])
        return np.maximum(MIN_FRAMES, np.where(self.needs_all_text[rows], of_text, 0))

    def _draw(self, row: int, frame: int) -> None:
        frames = np.arange(frame, frame + _NOISE_FRAMES + 1)
        self.noise[row] = uniforms(self.seeds[row], frames, self.noise.shape[-1])


class DeviceRecords:
    """Records on the device.

    Args:
        packed: [B, N] int32.
        layout: by `record_type`.
    """

    def __init__(self, packed: Tensor, layout: np.dtype) -> None:
        self._integers, self._floats = packed, packed.view(torch.float32)
        self._layout = layout

    def integer(self, name: str) -> Tensor:
        """[B] int64."""
        return self._integers[:, self._place(name)].long()

    def number(self, name: str) -> Tensor:
        """[B, 1] float32."""
        place = self._place(name)
        return self._floats[:, place : place + 1]

    @property
    def noise(self) -> Tensor:
        """[B, K] float32."""
        return self._floats[:, self._span("noise")]

    @property
    def table(self) -> Tensor:
        """[B, n] int64."""
        return self._integers[:, self._span("pages")].long()

    def settings(self, name: str) -> RowSettings:
        """How codes are chosen."""
        start = self._place(name)
        is_sampled, temperature, top_k, top_p = range(start, start + 4)
        return RowSettings(
            self._integers[:, is_sampled : is_sampled + 1] > 0,
            self._floats[:, temperature : temperature + 1],
            self._integers[:, top_k : top_k + 1].long(),
            self._floats[:, top_p : top_p + 1],
        )

    def _place(self, name: str) -> int:
        return self._span(name).start

    def _span(self, name: str) -> slice:
        fields: Any = self._layout.fields  # a mapping of literal names, to the type checker
        kind, start, *_ = fields[name]
        return slice(start // 4, (start + kind.itemsize) // 4)
