"""The tensors of the engine: prompts and text ids in, samples out, by row.

Talker, code predictor and codec take one frame of every row together. Knows no contexts, no text
and no deadlines.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.generate import Batch
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams

_PCM_SCALE = 32_767


@dataclass(frozen=True, slots=True)
class Made:
    """One row's new frame as PCM16, and whether the row has ended with it."""

    row: int
    pcm: bytes
    is_last: bool


class Runner:
    """Rows of one model on one device.

    Args:
        checkpoint: the model.
        codec: its codec, with the same codebooks.
        rows: how many sequences at a time.
        capacity: positions of a row: its prompt and its frames.
    """

    def __init__(self, checkpoint: Checkpoint, codec: Codec, rows: int, capacity: int) -> None:
        self.capacity = capacity
        self._batch = Batch(checkpoint.network, rows, capacity)
        self._decoder = codec.decoder
        self._state = codec.decoder.new_state(rows, max_frames=1)
        self._codebook_size = codec.codebook_size

    @property
    def free_rows(self) -> list[int]:
        """Rows that can be started."""
        return self._batch.free

    @torch.inference_mode()
    def start(
        self, row: int, prompt: Prompt, sampling: SamplingParams, max_frames: int, *, is_open: bool
    ) -> None:
        """Prefill `prompt` into a free row; a clone's sound continues its reference."""
        self._batch.join(row, prompt, sampling, max_frames, is_open=is_open)
        self._state.reset([row])
        if prompt.reference_codes is not None:
            self._prime(row, prompt.reference_codes)

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool) -> None:
        """More text of a row that was started open."""
        self._batch.feed(row, text_ids, is_last=is_last)

    def cancel(self, row: int) -> None:
        """Free a row; idempotent."""
        self._batch.cancel(row)

    @torch.inference_mode()
    def step(self, rows: Collection[int]) -> list[Made]:
        """Make one frame of each of `rows` that has the text for it."""
        step = self._batch.step(rows)
        if not step.made:
            return []
        made = torch.zeros(self._state.rows, dtype=torch.bool, device=step.codes.device)
        made[list(step.made)] = True
        # Rows that made nothing have codes without meaning, which must still be in the tables.
        codes = step.codes.clamp(0, self._codebook_size - 1)[:, :, None]  # [B, K, 1]
        samples = self._decoder.decode(codes, self._state, made)
        pcm = (samples.clamp(-1, 1) * _PCM_SCALE).round().to("cpu", torch.int16)
        return [
            Made(row, pcm[row, :FRAME_SAMPLES].numpy().astype("<i2").tobytes(), row in step.ended)
            for row in step.made
        ]

    def _prime(self, row: int, reference_codes: torch.Tensor) -> None:
        """Let the codec hear the reference, in a state of its own, and continue from there."""
        alone = self._decoder.new_state(1, max_frames=1)
        codes = reference_codes.T[None].to(alone.positions.device)
        self._decoder.prime(codes, alone)
        self._state.copy_row(row, alone, 0)
