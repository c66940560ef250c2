"""The graphs of a runner: all passes and codec calls, captured before the first start."""

import gc
from collections.abc import Callable
from contextlib import suppress

import torch

from voiceagent_tts.engine.codec_stream import CodecStream
from voiceagent_tts.engine.cuda_graph import Stream
from voiceagent_tts.engine.passes import Passes

Progress = Callable[[int, int], None]
"""Called with the number of finished parts and the total."""


class Graphs:
    """Captures the passes and codec calls of one runner, or lets them run without graphs.

    Args:
        passes: passes over the rows.
        codec: calls of the codec.
        streams: every stream of the runner, that of the passes first.

    Attributes:
        bytes: memory of captured graphs, where it was measured.
        fault: reason why passes run without graphs although they should have them.
    """

    def __init__(self, passes: Passes, codec: CodecStream, streams: tuple[Stream, ...]) -> None:
        self.bytes = 0
        self.fault: str | None = None
        self._passes = passes
        self._codec = codec
        self._streams = streams

    @property
    def are_used(self) -> bool:
        """Whether passes are replays of captured graphs."""
        return self._streams[0].is_captured

    @property
    def count(self) -> int:
        """Number of passes and codec calls that `capture` compiles."""
        return len([*self._passes.keys(), *self._codec.keys()])

    def capture(self, progress: Progress) -> None:
        """Compile every pass and every call of the codec, and run each once on the scratch row.

        The first replay of a graph uploads it to the GPU, for which no request should wait. Other
        sizes are refused from then on.

        If this raises, only `drop` makes the runner usable.
        """
        done, total = 0, self.count
        for owner in (self._passes, self._codec):
            for key in owner.keys():
                owner.calls[key]  # pyright: ignore[reportArgumentType]
                progress(done := done + 1, total)
            owner.calls.seal()
        self._run_all()

    @torch.inference_mode()
    def _run_all(self) -> None:
        with self._streams[0].entered():
            for pass_key in self._passes.keys():
                self._passes.calls[pass_key]()
        for call_key in self._codec.keys():
            self._codec.calls[call_key]()
        for stream in self._streams:
            stream.mark().wait()

    def drop(self, fault: str) -> None:
        """Drop all graphs, and run passes plainly from now on: slower, but with the same results.

        Args:
            fault: why graphs cannot be used.
        """
        self.fault, self.bytes = fault, 0
        self._passes.calls.clear()
        self._codec.calls.clear()
        for stream in self._streams:
            stream.stop_capturing()
        if self._streams[0].device.type == "cuda":
            gc.collect()
            # PyTorch 2.11 and 2.12 still count a capture that CUDA invalidated as underway, and
            # refuse to release memory. Passes run without that memory, too.
            with suppress(RuntimeError):
                torch.cuda.empty_cache()
