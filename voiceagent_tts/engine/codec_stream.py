"""Decodes frames to PCM16 in parallel with the talker, windows of many rows per codec call.

Codes are read from the tensor that the talker's passes write; the audio of each row is returned in
order. On a GPU the codec has its own stream, so that it overlaps the next decode steps, and audio
is collected once it is complete. The caller decides which frames of which rows are decoded.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.cuda_graph import CompiledCalls, Stream, StreamEvent, Upload
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES, fitting
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.codec_state import CodecState

_PCM_SCALE = 32_767
MOST_CALLS = 32
"""Maximum number of calls in flight after audio was collected. The scheduler limits the frames in
the codec, so that this limit is not reached; it protects callers that submit any number."""


@dataclass(frozen=True, slots=True)
class Sound:
    """Decoded audio of a row, which follows its previous sound.

    Attributes:
        pcm: samples as PCM16 at 24 kHz.
    """

    row: int
    pcm: bytes
    frames: int


@dataclass(frozen=True, slots=True)
class Window:
    """Frames of a row, from number `start` on, that one call decodes."""

    row: int
    start: int


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in flight.

    Attributes:
        windows: frames that it decodes, one window per row.
        runs: run number of each window's row when the call was launched. The audio of a row that
            was started again or dropped since then is discarded.
        pcm: samples on the host, [B * F * 1920] int16; complete once `done` is past.
    """

    windows: tuple[Window, ...]
    runs: tuple[int, ...]
    frames: int
    pcm: Tensor
    began: StreamEvent
    done: StreamEvent


def split_windows(
    wanted: Mapping[int, int], decoded: Sequence[int], sizes: Mapping[int, Sequence[int]]
) -> Iterator[tuple[int, tuple[Window, ...]]]:
    """Split the frames to decode into calls; each is (frames per row, windows).

    Calls with small windows come first, because rows that wait for their first audio have them.
    `wanted` and `decoded` are numbers of frames by row. `sizes` are the numbers of rows that a call
    can have, ascending, by its frames per row, among which one must be.
    """
    before, calls = dict(wanted), list[tuple[int, tuple[Window, ...]]]()
    for frames in sorted(sizes, reverse=True):
        while rows := [row for row, count in before.items() if count >= frames]:
            for row in rows:
                before[row] -= frames
            windows = [Window(row, decoded[row] + before[row]) for row in rows]
            for begin in range(0, len(rows), most := sizes[frames][-1]):
                calls.append((frames, tuple(windows[begin : begin + most])))
    return reversed(calls)


class Priming:
    """Computes the codec's state after the reference of a cloned voice, one part in each step.

    A reference of 30 s has 375 frames, whose passes take far longer than a step. In parts it delays
    the rows that speak by one part, and only its own voice by all of them. Parts have the sizes of
    windows, the small ones first, so that no size is met that did not run at the start.

    Args:
        reference_codes: [F, K] int64 on the CPU, at least one frame.
        part: tensor that a part of the codes is sent to, [frames, K] int64; the host never waits
            for the stream's earlier work, as a plain copy would.
    """

    def __init__(
        self, decoder: CodecDecoder, reference_codes: Tensor, part: Upload, stream: Stream
    ) -> None:
        self._decoder, self._codes = decoder, reference_codes
        self._part, self._stream = part, stream
        sizes: Mapping[int, Sequence[int]] = dict.fromkeys(WINDOWS_FRAMES, (1,))
        self._parts = deque(split_windows({0: len(reference_codes)}, [0], sizes))
        with torch.inference_mode(), stream.entered():
            self.state = decoder.new_state(1, len(part.tensor))
            """State after the frames so far; to be copied once all are done."""

    @property
    def is_done(self) -> bool:
        """Whether all frames are in the state."""
        return not self._parts

    @torch.inference_mode()
    def advance(self) -> None:
        """Compute the next part; there must be one."""
        frames, (window,) = self._parts.popleft()
        end = window.start + frames
        with self._stream.entered():
            self._part.send(self._codes[window.start : end].numpy())
            codes = self._part.tensor[:frames].T[None]
            self._decoder.prime_part(codes, len(self._codes) - end, self.state)


class CodecStream:
    """Streaming codec decoder for the rows of one batch."""

    def __init__(
        self, codec: Codec, codes: Tensor, stream: Stream, sizes: Mapping[int, Sequence[int]]
    ) -> None:
        self._decoder, self._codes = codec.decoder, codes
        self._stream = stream
        rows, codebooks = len(codes) - 1, codes.shape[-1]
        self._scratch, self._last_code = rows, codec.codebook_size - 1
        self._sizes = sizes
        self._state = codec.decoder.new_state(rows + 1, max(WINDOWS_FRAMES))
        self.state_bytes = self._state.bytes
        most = max(counts[-1] for counts in sizes.values())
        part = (self._state.max_frames, codebooks)
        self._reference_part = Upload(part, torch.int64, stream.device)
        self._windows = Upload((most, 2), torch.int32, stream.device)
        self._windows.send(self._scratch_windows(most))  # captures run on the scratch row
        samples = max(frames * counts[-1] for frames, counts in sizes.items()) * FRAME_SAMPLES
        self._pcm = torch.zeros(samples, dtype=torch.int16, device=stream.device)
        is_cuda = stream.device.type == "cuda"  # there, to allocate pinned memory stalls all work
        self._spare = [self._new_buffer() for _ in range(MOST_CALLS if is_cuda else 0)]
        self.calls = CompiledCalls[tuple[int, int]](lambda key: self._compile(*key))
        """Compiled calls, by number of rows and frames per row."""
        self._decoded, self._runs = [0] * rows, [0] * rows
        self._calls: deque[_Call] = deque()
        self.spent_s = 0.0
        """Device time of the calls whose audio was collected, in seconds."""

    @property
    def calls_in_flight(self) -> int:
        """Number of calls whose audio was not collected."""
        return len(self._calls)

    def keys(self) -> Iterator[tuple[int, int]]:
        """Yield every call that `sizes` allow as (rows, frames per row), the largest first."""
        for frames in sorted(self._sizes, reverse=True):
            for count in reversed(self._sizes[frames]):
                yield count, frames

    def run_largest(self) -> None:
        """Run the largest call on the scratch row."""
        count, frames = max(self.keys(), key=lambda key: key[0] * key[1])
        self.calls[count, frames]()

    def prime_parts(self) -> None:
        """Compute a part of every size, so that its kernels are there before they are needed."""
        for frames in WINDOWS_FRAMES:
            self.prime(torch.zeros(frames, self._codes.shape[-1], dtype=torch.int64)).advance()

    def prime(self, reference_codes: Tensor) -> Priming:
        """Begin to compute the decoder state of one row after a reference ([F, K] int64)."""
        return Priming(self._decoder, reference_codes, self._reference_part, self._stream)

    @torch.inference_mode()
    def start(self, row: int, primed: CodecState | None) -> None:
        """Start a row after `primed`, by default after silence; drop its audio in flight."""
        self.drop(row)
        self._decoded[row] = 0
        with self._stream.entered():
            if primed is None:
                self._state.reset(row)
            else:
                self._state.copy_row(row, primed)

    def drop(self, row: int) -> None:
        """Discard the row's audio in flight when it arrives."""
        self._runs[row] += 1

    @torch.inference_mode()
    def decode(
        self, wanted: Mapping[int, int], made: Mapping[int, int], coded: StreamEvent
    ) -> None:
        """Launch calls that decode at most `wanted` further frames by row.

        These rows have made `made` frames, which are complete after the event `coded`.
        """
        counts = {row: min(count, made[row] - self._decoded[row]) for row, count in wanted.items()}
        self._stream.wait_for(coded)
        for frames, windows in split_windows(counts, self._decoded, self._sizes):
            self._launch(frames, windows)
            for window in windows:
                self._decoded[window.row] += frames

    def collect(self, *, is_waiting: bool, newest: int = 0) -> tuple[Sound, ...]:
        """Return the audio that was completed since the last call, at most one sound per row.

        With `is_waiting`, or with too many calls in flight, wait for the oldest one. So many of the
        `newest` calls are left for a later collection.
        """
        if is_waiting and self._calls:
            self._calls[0].done.wait()
        if len(self._calls) > MOST_CALLS:
            self._calls[-1 - MOST_CALLS].done.wait()
        pcm: dict[int, list[bytes]] = {}
        frames: dict[int, int] = {}
        while len(self._calls) > newest and self._calls[0].done.is_past:
            call = self._calls.popleft()
            self.spent_s += call.done.seconds_since(call.began)
            for row, part in self._parts(call):
                pcm.setdefault(row, []).append(part)
                frames[row] = frames.get(row, 0) + call.frames
            self._spare.append(call.pcm)
        return tuple(Sound(row, b"".join(parts), frames[row]) for row, parts in pcm.items())

    def _parts(self, call: _Call) -> Iterator[tuple[int, bytes]]:
        samples = call.pcm.numpy()[: len(call.windows) * call.frames * FRAME_SAMPLES]
        rows = samples.reshape(len(call.windows), -1)
        for window, run, of_row in zip(call.windows, call.runs, rows, strict=True):
            if run == self._runs[window.row]:
                yield window.row, of_row.tobytes()

    def _launch(self, frames: int, windows: tuple[Window, ...]) -> None:
        count = fitting(self._sizes[frames], len(windows))
        places = self._scratch_windows(count)
        places[: len(windows)] = [(window.row, window.start) for window in windows]
        with self._stream.entered():
            self._windows.send(places)
        began = self._stream.mark()
        self.calls[count, frames]()
        pcm = self._spare.pop() if self._spare else self._new_buffer()
        with self._stream.entered():
            samples = count * frames * FRAME_SAMPLES
            pcm[:samples].copy_(self._pcm[:samples], non_blocking=True)
        runs = tuple(self._runs[window.row] for window in windows)
        self._calls.append(_Call(windows, runs, frames, pcm, began, self._stream.mark()))

    def _scratch_windows(self, count: int) -> np.ndarray:
        return np.full((count, 2), (self._scratch, 0), np.int32)

    def _new_buffer(self) -> Tensor:
        is_cuda = self._stream.device.type == "cuda"
        return torch.zeros(self._pcm.shape, dtype=torch.int16, pin_memory=is_cuda)

    def _compile(self, count: int, frames: int) -> Callable[[], None]:
        call = self._stream.compile(lambda: self._decode(count, frames))

        def run() -> None:
            with self._stream.entered():
                call()

        return run

    def _decode(self, count: int, frames: int) -> None:
        windows = self._windows.tensor[:count].long()
        rows, starts = windows[:, :1], windows[:, 1:]
        numbers = starts + torch.arange(frames, device=rows.device)  # [B, F]
        # The scratch row may contain any numbers, but they must be valid indices of codebooks.
        codes = self._codes[rows, numbers].long().clamp(0, self._last_code)
        samples = self._decoder.decode(codes.transpose(1, 2), self._state, rows[:, 0])
        pcm = (samples * _PCM_SCALE).round().to(torch.int16)
        self._pcm[: pcm.numel()] = pcm.flatten()
