"""Computes the codec's state after the reference of a cloned voice, one part in each step.

A reference of 30 s has 375 frames, whose passes take far longer than a step. In parts it delays the
rows that speak by one part, and only its own voice by all of them. Knows no contexts.
"""

import torch
from torch import Tensor

from voiceagent_tts.engine.cuda_graph import Stream
from voiceagent_tts.engine.transfer import Upload
from voiceagent_tts.model.codec_decoder import CodecDecoder


class Priming:
    """The codec's state of one row on its way through a reference.

    Args:
        decoder: decoder of the codec.
        reference_codes: [F, K] int64 on the CPU, at least one frame.
        part: tensor that a part of the codes is sent to, [frames, K] int64; the host never waits
            for the stream's earlier work, as a plain copy would.
        stream: stream of the codec.
    """

    def __init__(
        self, decoder: CodecDecoder, reference_codes: Tensor, part: Upload, stream: Stream
    ) -> None:
        self._decoder, self._codes = decoder, reference_codes
        self._part, self._stream = part, stream
        self._done_frames = 0
        with torch.inference_mode(), stream.entered():
            self.state = decoder.new_state(1, len(part.tensor))
            """State after the frames so far; to be copied once all are done."""

    @property
    def is_done(self) -> bool:
        """Whether all frames are in the state."""
        return self._done_frames == len(self._codes)

    @torch.inference_mode()
    def advance(self) -> None:
        """Compute the next part; there must be one."""
        codes = self._codes[self._done_frames :][: len(self._part.tensor)]
        self._done_frames += len(codes)
        with self._stream.entered():
            self._part.send(codes.numpy())
            following = len(self._codes) - self._done_frames
            self._decoder.prime_part(self._part.tensor[: len(codes)].T[None], following, self.state)
