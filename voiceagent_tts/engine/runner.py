"""Runs the rows of one model: prompts and text ids in; codes, then PCM, out.

A step makes one frame of some rows and decodes waiting frames of some; the caller decides which,
and which row has which KV pages. Frames stay on the device; only codebook 0 of each comes to the
host. On a GPU every pass is a captured graph and the codec has its own stream; on a CPU the same
passes run plainly.
"""

import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.engine.codec_stream import CodecStream, Priming, Sound
from voiceagent_tts.engine.cuda_graph import CODEC_PRIORITY, Stream, StreamEvent
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.sizes import Sizes, exact_sizes
from voiceagent_tts.errors import OverloadedError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.kv_pool import KVPrefix, pages_for
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

Progress = Callable[[int, int], None]
"""Called with the number of finished parts and the total."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prefix:
    """The computed beginning of a prompt, the part that does not depend on the text.

    Its memory is freed with the last reference to it.
    """

    prompt: Prompt
    kv: KVPrefix

    def __len__(self) -> int:
        return len(self.prompt)

    def begins(self, prompt: Prompt) -> bool:
        """Whether `prompt` continues this prefix."""
        own = self.prompt
        return (
            len(own) < len(prompt)
            and prompt.text_ids[: len(own)] == own.text_ids
            and prompt.codec_ids[: len(own)] == own.codec_ids
        )


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that a row made.

    Attributes:
        code: code of codebook 0.
        is_end: whether it is the row's last frame. Waiting frames can still be decoded.
    """

    row: int
    code: int
    is_end: bool


@dataclass(frozen=True, slots=True)
class StepResult:
    """Results of one step.

    Attributes:
        frames: one frame of each row that made one.
        sounds: audio that was decoded, possibly by an earlier step; at most one per row.
    """

    frames: tuple[Frame, ...] = ()
    sounds: tuple[Sound, ...] = ()


@dataclass(frozen=True, slots=True)
class StepCost:
    """Measured duration of a step that made a frame of `rows` rows, `starts` of them new."""

    rows: int
    starts: int
    seconds: float


@dataclass(slots=True)
class Timings:
    """Totals of all steps, in seconds of device time unless stated otherwise.

    Attributes:
        steps: number of steps that made frames.
        codec_s: on a GPU it overlaps the others.
        host_s: host time while the device was idle.
    """

    steps: int = 0
    frames: int = 0
    prefill_s: float = 0.0
    predictor_s: float = 0.0
    talker_s: float = 0.0
    codec_s: float = 0.0
    host_s: float = 0.0


class Runner:
    """The rows of one model on one device.

    Args:
        codec: the model's codec, on the same device.
        rows: maximum number of sequences at a time.
        capacity: positions of a row: its prompt and its frames.
        pages: KV pages of all rows together; by default as many as the rows can fill.
        sizes: sizes that passes and codec calls are padded to; by default none are padded.
        has_graphs: whether passes are captured, if the device has graphs; call `capture` before the
            first start.
        prefix_bytes: maximum memory of all prefixes.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        codec: Codec,
        rows: int,
        capacity: int,
        *,
        pages: int | None = None,
        sizes: Sizes | None = None,
        has_graphs: bool = False,
        prefix_bytes: int = 2**30,
    ) -> None:
        self.capacity, self.max_rows = capacity, rows
        self.pages = rows * pages_for(capacity) if pages is None else pages
        """Number of KV pages, from 1; the caller decides which row has which."""
        self.timings = Timings()
        self.kernel_fault: str | None = None
        self.codec_fault: str | None = None
        """Reasons why plain kernels run although fused ones were wanted."""
        self.codec_kernels: Kernels = "fused" if codec.decoder.is_fused else "plain"
        self.kernels: Kernels = checkpoint.network.kernels
        """Kernels between the network's matrix products."""
        self._calls_of_step = 0
        self.costs: tuple[StepCost, ...] = ()
        """Durations of warm-up steps, for the scheduler's first decisions."""
        sizes = sizes or exact_sizes(rows, capacity)
        network = checkpoint.network
        self._stream = Stream(network.device, is_captured=has_graphs)
        self.has_graphs = self._stream.is_captured
        """Whether passes are replays of captured graphs."""
        self.batch = Batch(
            network,
            rows,
            capacity,
            pages=self.pages,
            shapes=sizes.talker,
            samplers=make_samplers([sampling_params(checkpoint.generation)], network.kernels),
            compile=self._stream.compile,
        )
        """The rows, whose passes only this runner runs."""
        stream = Stream(network.device, is_captured=has_graphs, priority=CODEC_PRIORITY)
        self._codec = CodecStream(codec, self.batch.codes, stream, sizes.codec)
        self.codec_row_bytes = self._codec.state_bytes // (rows + 1)
        """Memory of the codec state of one row, or of one primed voice."""
        self._streams = self._stream, stream
        self._has_clones = checkpoint.config.has_speaker_encoder
        self.graph_bytes = 0
        """Memory of captured graphs, where it was measured."""
        self._prefixes = weakref.WeakSet[Prefix]()
        self._prefix_bytes = prefix_bytes
        if network.device.type == "cuda":
            torch.cuda.synchronize(network.device)  # what was loaded is there for every stream

    @property
    def has_sound_in_flight(self) -> bool:
        """Whether a later step will return audio that is being decoded now."""
        return self._codec.calls_in_flight > 0

    @property
    def graph_count(self) -> int:
        """Number of passes and codec calls that `capture` compiles."""
        return len([*self.batch.passes.keys(), *self._codec.keys()])

    def capture(self, progress: Progress) -> None:
        """Compile every pass and every call of the codec, and run each once on the scratch row.

        The first replay of a graph uploads it to the GPU, for which no request should wait. Other
        sizes are refused from then on. On streams without graphs every pass and call runs once, so
        that kernels are loaded, and what fails does so before the first request. So do the parts of
        clones' references, which are never captured.

        If this raises, the runner cannot be used, and after some faults not even its process.
        """
        done, total = 0, self.graph_count
        for owner in (self.batch.passes, self._codec):
            for key in owner.keys():
                owner.calls[key]  # pyright: ignore[reportArgumentType]
                progress(done := done + 1, total)
            owner.calls.is_sealed = True
        self._run_all()

    @torch.inference_mode()
    def _run_all(self) -> None:
        passes = self.batch.passes
        with self._stream.entered():
            for pass_key in passes.keys():
                passes.calls[pass_key]()
        for call_key in self._codec.keys():
            self._codec.calls[call_key]()
        if self._has_clones:
            self._codec.prime_parts()
        for stream in self._streams:
            stream.mark().wait()

    @torch.inference_mode()
    def run_largest_passes(self) -> None:
        """Run the largest pass of every kind on the scratch row."""
        with self._stream.entered():
            self.batch.passes.run_largest()

    @torch.inference_mode()
    def run_largest_call(self) -> None:
        """Run the largest codec call on the scratch row."""
        self._codec.run_largest()

    @property
    def description(self) -> dict[str, str | bool]:
        """How this runner computes, for reports: its kernels, why not others, and graphs."""
        return {
            "kernels": self.kernels,
            "kernel_fault": self.kernel_fault or "",
            "codec_kernels": self.codec_kernels,
            "codec_fault": self.codec_fault or "",
            "has_graphs": self.has_graphs,
        }

    def reset_timings(self) -> None:
        """Count steps and their seconds from zero."""
        self.timings = Timings()
        self._codec.spent_s = 0.0

    def prime(self, reference_codes: Tensor) -> Priming:
        """Begin to compute the codec state of one row after a reference ([F, K] int64)."""
        return self._codec.prime(reference_codes)

    def can_prepare(self, prompt_prefix: Prompt) -> bool:
        """Whether a beginning fits into a row, and into the memory for prefixes if it is empty."""
        positions = len(prompt_prefix)
        has_memory = self.batch.prefix_bytes(positions) <= self._prefix_bytes
        return positions < self.capacity and has_memory

    def prepare(self, prompt_prefix: Prompt, pages: Sequence[int]) -> Prefix:
        """Compute the beginning of prompts.

        Args:
            prompt_prefix: the beginning; it `can_prepare`.
            pages: free KV pages with room for it; they are free again afterwards.

        Raises:
            OverloadedError: the memory for prefixes is full.
        """
        size = self.batch.prefix_bytes(len(prompt_prefix))
        if sum(prefix.kv.bytes for prefix in self._prefixes) + size > self._prefix_bytes:
            raise OverloadedError(f"prefixes use all {self._prefix_bytes} bytes of their limit")
        with self._stream.entered():
            prefix = Prefix(prompt_prefix, self.batch.prepare(prompt_prefix, pages))
        self._prefixes.add(prefix)
        return prefix

    def start(
        self,
        row: int,
        prompt: Prompt,
        sampling: SamplingParams,
        max_frames: int,
        *,
        is_open: bool,
        pages: Sequence[int] | None = None,
        primed: CodecState | None = None,
        prefix: Prefix | None = None,
    ) -> None:
        """Start a prompt in a free row, with the next step; arguments as in `Batch.join`.

        `sampling` is the checkpoint's recommendation, with any seed. Audio continues from `primed`,
        by default from silence.
        """
        assert prefix is None or prefix.begins(prompt)
        with self._stream.entered():
            self.batch.join(
                row,
                prompt,
                sampling,
                max_frames,
                is_open=is_open,
                needs_all_text=True,
                pages=pages,
                prefix=None if prefix is None else prefix.kv,
            )
        self._codec.start(row, primed)

    def cancel(self, row: int) -> None:
        """Free a row, and drop its audio in the codec; idempotent."""
        self.batch.cancel(row)
        self._codec.drop(row)

    def step(
        self,
        speak: Collection[int],
        decode: Mapping[int, int],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> StepResult:
        """Make one frame of some rows, and decode frames of some.

        A step that makes at most one frame waits for the next audio from the codec.

        Args:
            speak: rows that make a frame, if they have text for it and have not ended; none of
                them is full.
            decode: maximum number of undecoded frames to decode by row, this step's frame included.
            meanwhile: work of the host that is done while a GPU computes; it must not change rows.
        """
        assert not (full := self.batch.full_rows(speak)), f"rows without a page: {full}"
        began_s = time.perf_counter()
        began = self._stream.mark()
        with self._stream.entered():
            self.batch.prefill()
            prefilled = self._stream.mark()
            made = self.batch.code_predictor_step(speak)
            coded = self._stream.mark()
        earlier_calls = self._codec.calls_in_flight
        self._decode(decode, made, coded)
        self._calls_of_step = self._codec.calls_in_flight - earlier_calls
        decoding = self._stream.mark()
        with self._stream.entered():
            self.batch.talker_step()
            advanced = self._stream.mark()  # before the copy that the host waits for
            self.batch.send_back()
        meanwhile()
        step = self.batch.collect()
        # A single row leaves most of a GPU idle, so its audio is not left to the next step.
        sounds = self._codec.collect(is_waiting=len(made) <= 1)
        self._note(began_s, (began, prefilled, coded, decoding, advanced), len(made))
        frames = (
            Frame(row, code, row in step.ended)
            for row, code in zip(step.made, step.first, strict=True)
        )
        return StepResult(tuple(frames), sounds)

    def collect_earlier(self) -> tuple[Sound, ...]:
        """Return audio of earlier steps that has been completed since; for `meanwhile` of `step`.

        What the step itself has launched is left to its end, when its frames are counted.
        """
        return self._codec.collect(is_waiting=False, newest=self._calls_of_step)

    def _decode(self, decode: Mapping[int, int], made: tuple[int, ...], coded: StreamEvent) -> None:
        if decode:
            frames = {row: self.batch.frames(row) + (row in made) for row in decode}
            self._codec.decode(decode, frames, coded)

    def _note(self, began_s: float, events: tuple[StreamEvent, ...], frames: int) -> None:
        """Add the duration of the passes; after frames were made, the device is done with them."""
        if not frames:
            return
        began, prefilled, coded, decoding, advanced = events
        timings = self.timings
        timings.steps += 1
        timings.frames += frames
        timings.prefill_s += prefilled.seconds_since(began)
        timings.predictor_s += coded.seconds_since(prefilled)
        timings.talker_s += advanced.seconds_since(decoding)
        timings.codec_s = self._codec.spent_s
        timings.host_s += time.perf_counter() - began_s - advanced.seconds_since(began)
