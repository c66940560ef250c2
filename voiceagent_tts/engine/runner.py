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
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.generate import Batch
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams

_PCM_SCALE = 32_767


@dataclass(frozen=True, slots=True)
class Made:
    """One row's new frame: its sound as PCM16, and whether the row has ended with it."""

    row: int
    code: int
    """Of codebook 0."""
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
    def prime(self, reference_codes: torch.Tensor) -> CodecState:
        """Let the codec hear a reference ([F, K]): the state of one row that continues it."""
        state = self._decoder.new_state(1, max_frames=1)
        self._decoder.prime(reference_codes.T[None].to(state.positions.device), state)
        return state

    @torch.inference_mode()
    def start(
        self,
        row: int,
        prompt: Prompt,
        sampling: SamplingParams,
        max_frames: int,
        *,
        is_open: bool,
        primed: CodecState | None = None,
    ) -> None:
        """Prefill `prompt` into a free row.

        Args:
            row: a free one.
            prompt: as for `Batch.join`.
            sampling: as for `Batch.join`.
            max_frames: as for `Batch.join`.
            is_open: as for `Batch.join`.
            primed: what the row's sound continues; by default nothing.
        """
        self._batch.join(row, prompt, sampling, max_frames, is_open=is_open, needs_all_text=True)
        if primed is None:
            self._state.reset([row])
        else:
            self._state.copy_row(row, primed, 0)

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
        first = step.codes[:, 0].tolist()
        return [
            Made(
                row,
                first[row],
                pcm[row, :FRAME_SAMPLES].numpy().astype("<i2").tobytes(),
                row in step.ended,
            )
            for row in step.made
        ]
