"""The graphs of a runner: all passes and codec calls, captured before the first start."""

from collections.abc import Callable

import torch

from voiceagent_tts.engine.codec_stream import CodecStream
from voiceagent_tts.engine.cuda_graph import Stream
from voiceagent_tts.engine.passes import Passes

Progress = Callable[[int, int], None]
"""Called with the number of finished parts and the total."""


class Graphs:
    """Captures the passes and codec calls of one runner.

    Args:
        passes: passes over the rows.
        codec: calls of the codec.
        streams: every stream of the runner, that of the passes first.
        has_clones: whether the model speaks with clones, whose references are computed in parts.

    Attributes:
        bytes: memory of captured graphs, where it was measured.
    """

    def __init__(
        self, passes: Passes, codec: CodecStream, streams: tuple[Stream, ...], *, has_clones: bool
    ) -> None:
        self.bytes = 0
        self._passes = passes
        self._codec = codec
        self._streams = streams
        self._has_clones = has_clones

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
        sizes are refused from then on. On streams without graphs every pass and call runs once, so
        that kernels are loaded, and what fails does so before the first request. So do the parts of
        clones' references, which are never captured.

        If this raises, the runner cannot be used, and after some faults not even its process.
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
        if self._has_clones:
            self._codec.prime_parts()
        for stream in self._streams:
            stream.mark().wait()
