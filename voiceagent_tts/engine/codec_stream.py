"""Frames become samples beside the talker: windows of many rows in one call of the codec.

Takes the codes from where the talker's passes leave them and hands PCM16 out, each row's in order.
On a GPU it has a stream of its own, so that it overlaps the next frames; samples come when they are
there. Which rows, and how many frames of each, its caller decides. Knows no text and no deadlines.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.engine.cuda_graph import CompiledCalls, Stream, StreamEvent
from voiceagent_tts.engine.sizes import WINDOWS_FRAMES, fitting
from voiceagent_tts.engine.transfer import Upload
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_state import CodecState

_PCM_SCALE = 32_767
_MOST_CALLS = 16
"""On their way when sound has been collected: a codec that cannot keep up slows its caller down,
who would otherwise take what is made for what is heard."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The next `frames` frames of a row as PCM16, in order."""

    row: int
    pcm: bytes
    frames: int


@dataclass(frozen=True, slots=True)
class Window:
    """The next frames of a row that a call decodes; `start` is the number of the first."""

    row: int
    start: int


@dataclass(frozen=True, slots=True)
class _Call:
    """A call on its way.

    Attributes:
        windows: whose frames.
        runs: of these rows, when the call was made: a row that was started again is another.
        frames: of each row.
        pcm: on the host, [B * F * 1920] int16, complete when `done` is past.
        began: its first event.
        done: its last.
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
    """Calls that together decode so many further frames of each row: (frames, windows).

    Small windows come first: whoever waits for sound has them.

    Args:
        wanted: of each row, how many.
        decoded: of each row, how many are decoded.
        sizes: frames of each row in a call, 1 among them -> how many rows it takes, ascending.
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


class CodecStream:
    """The codec's rows.

    Args:
        codec: the codec, where its stream is.
        codes: [R + 1, F, K] int16, the frames of every row.
        source: a stream where `codes` are, beside the talker's.
        stream: the codec's; `source`, where both are on one device.
        sizes: as for `split_windows`.
    """

    def __init__(
        self,
        codec: Codec,
        codes: Tensor,
        source: Stream,
        stream: Stream,
        sizes: Mapping[int, Sequence[int]],
    ) -> None:
        self._decoder, self._codes = codec.decoder, codes
        self._source, self._stream = source, stream
        rows, codebooks = len(codes) - 1, codes.shape[-1]
        self._nobody, self._last_code = rows, codec.codebook_size - 1
        self._sizes = sizes
        self._state = codec.decoder.new_state(rows + 1, max(WINDOWS_FRAMES))
        most = max(counts[-1] for counts in sizes.values())
        self._windows = Upload((most, 2), torch.int32, source.device)
        self._windows.send(self._for_nobody(most))  # what is compiled runs for nobody
        width = 1 + max(sizes) * codebooks  # a row's number, then its codes
        self._taken = torch.zeros(most, width, dtype=torch.int64, device=source.device)
        self._here = self._taken if source is stream else self._taken.to(stream.device)
        samples = max(frames * counts[-1] for frames, counts in sizes.items()) * FRAME_SAMPLES
        self._pcm = torch.zeros(samples, dtype=torch.int16, device=stream.device)
        self._spare: list[Tensor] = []
        self.calls = CompiledCalls[tuple[int, int]](lambda key: self._compile(*key))
        """Compiled calls, by rows and frames of each row."""
        self._decoded, self._runs = [0] * rows, [0] * rows
        self._calls: deque[_Call] = deque()
        self.spent_s = 0.0
        """Seconds of the device, in calls that were collected."""

    @property
    def is_busy(self) -> bool:
        """Whether sound is on its way."""
        return bool(self._calls)

    @property
    def state_bytes(self) -> int:
        """Memory of all rows."""
        return self._state.bytes

    def keys(self) -> Iterator[tuple[int, int]]:
        """Every call that there is, as (rows, frames), the largest first."""
        for frames in sorted(self._sizes, reverse=True):
            for count in reversed(self._sizes[frames]):
                yield count, frames

    def run_largest(self) -> None:
        """Decode as many frames as a call has, for nobody."""
        count, frames = max(self.keys(), key=lambda key: key[0] * key[1])
        self.calls[count, frames]()

    @torch.inference_mode()
    def prime(self, reference_codes: Tensor) -> CodecState:
        """The state of one row that has heard a reference ([F, K])."""
        with self._stream.entered():
            state = self._decoder.new_state(1, self._state.max_frames)
            self._decoder.prime(reference_codes.T[None].to(self._stream.device), state)
        return state

    @torch.inference_mode()
    def start(self, row: int, primed: CodecState | None) -> None:
        """Begin a row anew, after what `primed` has heard; sound on its way is dropped."""
        self.drop(row)
        self._decoded[row] = 0
        with self._stream.entered():
            if primed is None:
                self._state.reset(row)
            else:
                self._state.copy_row(row, primed, 0)

    def drop(self, row: int) -> None:
        """Nobody waits for the row's sound any more."""
        self._runs[row] += 1

    @torch.inference_mode()
    def decode(
        self, wanted: Mapping[int, int], made: Mapping[int, int], coded: StreamEvent
    ) -> None:
        """Decode further frames of rows.

        Args:
            wanted: of each row, how many; fewer where there are fewer.
            made: of each row, how many frames it has in all.
            coded: when they are there.
        """
        counts = {row: min(count, made[row] - self._decoded[row]) for row, count in wanted.items()}
        self._source.wait_for(coded)
        for frames, windows in split_windows(counts, self._decoded, self._sizes):
            self._launch(frames, windows)
            for window in windows:
                self._decoded[window.row] += frames

    def collect(self, *, is_waiting: bool) -> tuple[Sound, ...]:
        """The sound that has come since the last call, one of each row.

        Args:
            is_waiting: whether to wait for what comes next; where too much is on its way it waits
                in any case.
        """
        if is_waiting and self._calls:
            self._calls[0].done.wait()
        if len(self._calls) > _MOST_CALLS:
            self._calls[-1 - _MOST_CALLS].done.wait()
        pcm: dict[int, list[bytes]] = {}
        frames: dict[int, int] = {}
        while self._calls and self._calls[0].done.is_past:
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
        places = self._for_nobody(count)
        places[: len(windows)] = [(window.row, window.start) for window in windows]
        with self._source.entered():
            self._windows.send(places)
        began = self._stream.mark()
        self.calls[count, frames]()
        pcm = self._spare.pop() if self._spare else self._new_buffer()
        with self._stream.entered():
            samples = count * frames * FRAME_SAMPLES
            pcm[:samples].copy_(self._pcm[:samples], non_blocking=True)
        runs = tuple(self._runs[window.row] for window in windows)
        self._calls.append(_Call(windows, runs, frames, pcm, began, self._stream.mark()))

    def _for_nobody(self, count: int) -> np.ndarray:
        return np.full((count, 2), (self._nobody, 0), np.int32)

    def _new_buffer(self) -> Tensor:
        is_cuda = self._stream.device.type == "cuda"
        return torch.zeros(self._pcm.shape, dtype=torch.int16, pin_memory=is_cuda)

    def _compile(self, count: int, frames: int) -> Callable[[], None]:
        def take() -> None:
            self._take(count, frames)

        def decode() -> None:
            self._decode(count, frames)

        def both() -> None:
            take()
            decode()

        if self._source is self._stream:
            return self._entering(self._stream.compile(both))
        taking, decoding = self._source.compile(take), self._stream.compile(decode)
        return lambda: self._hand_over(taking, decoding)

    def _entering(self, call: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with self._stream.entered():
                call()

        return run

    def _hand_over(self, taking: Callable[[], None], decoding: Callable[[], None]) -> None:
        """From device to device: each waits for the other, and the host for neither."""
        self._source.wait_for(self._stream.mark())  # the codec has read what came before
        with self._source.entered():
            taking()
            self._here.copy_(self._taken, non_blocking=True)
        self._stream.wait_for(self._source.mark())
        with self._stream.entered():
            decoding()

    def _take(self, count: int, frames: int) -> None:
        windows = self._windows.tensor[:count].long()
        rows, starts = windows[:, :1], windows[:, 1:]
        numbers = starts + torch.arange(frames, device=rows.device)  # [B, F]
        # What nobody's row holds must still be in the tables.
        codes = self._codes[rows, numbers].clamp(0, self._last_code).flatten(1)
        self._taken[:count, :1] = rows
        self._taken[:count, 1 : 1 + codes.shape[1]] = codes

    def _decode(self, count: int, frames: int) -> None:
        taken = self._here[:count]
        width = frames * self._codes.shape[-1]
        codes = taken[:, 1 : 1 + width].view(count, frames, -1).transpose(1, 2)  # [B, K, F]
        samples = self._decoder.decode(codes, self._state, taken[:, 0])
        pcm = (samples * _PCM_SCALE).round().to(torch.int16)
        self._pcm[: pcm.numel()] = pcm.flatten()
