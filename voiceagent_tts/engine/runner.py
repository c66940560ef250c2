"""The tensors of the engine: prompts and text ids in; codes, then samples, out, by row.

A step makes one frame of some rows and decodes frames that wait in some; which, its caller decides.
Frames stay on the device: of each only codebook 0 is told. On a GPU every pass is a captured graph
and the codec has a stream of its own; on a CPU the same passes run plainly. Knows no contexts, no
text and no deadlines.
"""

import gc
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.engine.codec_stream import CodecStream, Sound
from voiceagent_tts.engine.cuda_graph import Lane, Moment
from voiceagent_tts.engine.generate import make_samplers
from voiceagent_tts.engine.kv_cache import PageAllocator
from voiceagent_tts.engine.prefixes import KVPrefix
from voiceagent_tts.engine.sizes import Sizes, exact_sizes
from voiceagent_tts.errors import InvalidRequestError, OverloadedError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.codec import Codec
from voiceagent_tts.model.codec_state import CodecState
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, pages_for
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import SamplingParams, sampling_params

Progress = Callable[[int, int], None]
"""Told how many parts of a whole are done."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that a row has made.

    Attributes:
        row: that made it.
        code: of codebook 0.
        is_end: the row makes no more frames; those that wait can still be decoded.
    """

    row: int
    code: int
    is_end: bool


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step brought.

    Attributes:
        frames: one of each row that made one.
        sounds: what has been decoded, maybe by an earlier step; at most one of a row.
        failed: rows that made no frame, and will make none, as there is no memory for it. Those
            that wait can still be decoded.
    """

    frames: tuple[Frame, ...] = ()
    sounds: tuple[Sound, ...] = ()
    failed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Prefix:
    """The part of a prompt that is the same for every text, computed once.

    Its memory is free when nobody refers to it.
    """

    prompt: Prompt
    kv: KVPrefix

    def __len__(self) -> int:
        return len(self.prompt)

    def begins(self, prompt: Prompt) -> bool:
        """Whether `prompt` goes on where this ends."""
        own = self.prompt
        return (
            len(own) < len(prompt)
            and prompt.text_ids[: len(own)] == own.text_ids
            and prompt.codec_ids[: len(own)] == own.codec_ids
        )


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step took.

    Attributes:
        rows: rows that made a frame.
        starts: rows among them whose prompts were prefilled.
        seconds: of the whole step.
    """

    rows: int
    starts: int
    seconds: float


@dataclass(slots=True)
class Timings:
    """Seconds that steps have taken, in all.

    Attributes:
        steps: how many.
        frames: made in them.
        prefill_s: of the device: prompts taken in.
        predictor_s: of the device: frames completed.
        talker_s: of the device: steps towards the next frames.
        codec_s: of the codec's device; on a GPU beside the others.
        host_s: of the host, while the device had none of these to do.
    """

    steps: int = 0
    frames: int = 0
    prefill_s: float = 0.0
    predictor_s: float = 0.0
    talker_s: float = 0.0
    codec_s: float = 0.0
    host_s: float = 0.0


class Runner:
    """Rows of one model on one device.

    Args:
        checkpoint: the model.
        codec: its codec, with the same codebooks; maybe on another device of the same kind.
        rows: how many sequences at a time.
        capacity: positions of a row: its prompt and its frames.
        pages: of memory, for all rows; by default as many as they can fill.
        sizes: that calls come in; by default as they come.
        has_graphs: whether passes are captured, where the device has graphs; call `capture` before
            the first start.
        prefix_bytes: most memory of all prefixes.
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
        self.timings = Timings()
        self.graph_bytes = 0
        """Memory that captured graphs take."""
        self.capture_fault: str | None = None
        """Why passes run without graphs although they should have them."""
        self.kernel_fault: str | None = None
        """Why plain kernels run although fused ones were wanted."""
        self.kernels: Kernels = checkpoint.network.kernels
        """What computes everything between the network's matrices."""
        self.costs: tuple[StepCost, ...] = ()
        """What steps took while the engine warmed up, for the scheduler's first decisions."""
        pages = rows * pages_for(capacity) if pages is None else pages
        sizes = sizes or exact_sizes(rows, capacity)
        network = checkpoint.network
        self._lane = Lane(network.device, is_captured=has_graphs)
        self._batch = Batch(
            network,
            rows,
            capacity,
            pages=pages,
            shapes=sizes.talker,
            samplers=make_samplers([sampling_params(checkpoint.generation)], network.kernels),
            compile=self._lane.compile,
        )
        source, device = Lane(network.device, is_captured=has_graphs), codec.decoder.device
        lane = source if device == network.device else Lane(device, is_captured=has_graphs)
        self._lanes = (self._lane, source, lane)
        self._codec = CodecStream(codec, self._batch.codes, source, lane, sizes.codec)
        self._pages = PageAllocator(pages)
        self._prefixes = weakref.WeakSet[Prefix]()
        self._prefix_bytes = prefix_bytes
        if network.device.type == "cuda":
            for place in {network.device, device}:  # what was loaded is there for every lane
                torch.cuda.synchronize(place)

    @property
    def free_rows(self) -> list[int]:
        """Rows that can be started."""
        return self._batch.free

    @property
    def free_pages(self) -> int:
        """Pages of memory that no row holds."""
        return self._pages.free

    @property
    def has_sound_in_flight(self) -> bool:
        """Whether sound is on its way that a later step brings."""
        return self._codec.is_busy

    def pages_held(self, row: int) -> int:
        """How many pages a row holds."""
        return len(self._pages.held(row))

    def pages_needed(self, prompt_positions: int) -> int:
        """How many free pages a prompt of so many positions takes to start, its first frame too.

        A row takes another page whenever it has filled one.
        """
        return pages_for(prompt_positions + 1)

    @property
    def calls(self) -> int:
        """How many passes and calls of the codec `capture` compiles."""
        return len([*self._batch.passes.keys(), *self._codec.keys()])

    @property
    def page_bytes(self) -> int:
        """Memory of a page."""
        return self._batch.prefix_bytes(PAGE_POSITIONS)

    @property
    def codec_row_bytes(self) -> int:
        """What the codec remembers of a row, or of a voice's reference."""
        return self._codec.state_bytes // (self.max_rows + 1)

    @torch.inference_mode()
    def run_largest_passes(self) -> None:
        """Run the largest pass of every kind, for nobody."""
        with self._lane.entered():
            self._batch.passes.run_largest()

    @torch.inference_mode()
    def run_largest_call(self) -> None:
        """Let the codec decode as many frames as a call has, for nobody."""
        self._codec.run_largest()

    @property
    def has_graphs(self) -> bool:
        """Whether passes are replays of captured graphs."""
        return self._lane.is_captured

    @property
    def description(self) -> dict[str, str | bool]:
        """How this runner computes, for reports: kernels and graphs, and why either is missing."""
        return {
            "kernels": self.kernels,
            "kernel_fault": self.kernel_fault or "",
            "has_graphs": self.has_graphs,
            "capture_fault": self.capture_fault or "",
        }

    def capture(self, progress: Progress) -> None:
        """Compile every pass and every call of the codec; others are refused from then on.

        If this raises, only `run_without_graphs` makes the runner usable.
        """
        tables = ((self._batch.passes.calls, self._batch.passes), (self._codec.calls, self._codec))
        done, total = 0, self.calls
        for calls, owner in tables:
            for key in owner.keys():
                calls[key]  # pyright: ignore[reportArgumentType]
                progress(done := done + 1, total)
            calls.seal()

    def run_without_graphs(self, fault: str) -> None:
        """Drop all graphs, and run passes plainly from now on: slower, but with the same results.

        Args:
            fault: why graphs cannot be used.
        """
        self.capture_fault, self.graph_bytes = fault, 0
        self._batch.passes.calls.clear()
        self._codec.calls.clear()
        for lane in self._lanes:
            lane.stop_capturing()
        if self._lane.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def reset_timings(self) -> None:
        """Count steps and their seconds from zero."""
        self.timings = Timings()
        self._codec.spent_s = 0.0

    def prime(self, reference_codes: Tensor) -> CodecState:
        """Let the codec hear a reference ([F, K]): the state of one row that continues it."""
        return self._codec.prime(reference_codes)

    def can_prepare(self, prompt_prefix: Prompt) -> bool:
        """Whether a row has room for more than this, and pages to compute it are free."""
        positions = len(prompt_prefix)
        return positions < self.capacity and pages_for(positions) <= self.free_pages

    def prepare(self, prompt_prefix: Prompt) -> Prefix:
        """Compute what every prompt with this beginning has in common.

        Args:
            prompt_prefix: one that `can_prepare`.

        Raises:
            OverloadedError: prefixes fill the memory kept for them.
        """
        size = self._batch.prefix_bytes(len(prompt_prefix))
        if sum(prefix.kv.bytes for prefix in self._prefixes) + size > self._prefix_bytes:
            raise OverloadedError(f"prefixes fill the {self._prefix_bytes} bytes kept for them")
        nobody = self.max_rows
        pages = self._pages.take(nobody, pages_for(len(prompt_prefix)))
        with self._lane.entered():
            prefix = Prefix(prompt_prefix, self._batch.prepare(prompt_prefix, pages))
        self._pages.release(nobody)
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
        primed: CodecState | None = None,
        prefix: Prefix | None = None,
    ) -> None:
        """Let a free row speak `prompt`, from the next step on.

        Args:
            row: a free one.
            prompt: fits, with one frame, into the row's capacity.
            sampling: how: what the checkpoint recommends, with any seed, or less.
            max_frames: the row ends after so many, or where its capacity ends.
            is_open: `feed` brings the rest of the text.
            primed: what the row's sound continues; by default nothing.
            prefix: with which the prompt begins.

        Raises:
            OverloadedError: there are fewer free pages than the prompt takes.
            InvalidRequestError: codes cannot be chosen as `sampling` asks for.
        """
        assert prefix is None or prefix.begins(prompt)
        pages = self._pages.take(row, self.pages_needed(len(prompt)))
        try:
            with self._lane.entered():
                self._batch.join(
                    row,
                    prompt,
                    sampling,
                    max_frames,
                    is_open=is_open,
                    needs_all_text=True,
                    pages=pages,
                    prefix=None if prefix is None else prefix.kv,
                )
        except InvalidRequestError:
            self._pages.release(row)
            raise
        self._codec.start(row, primed)

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool) -> None:
        """More text of a row that was started open."""
        self._batch.feed(row, text_ids, is_last=is_last)

    def cancel(self, row: int) -> None:
        """Free a row and its memory, at any time; idempotent. Sound on its way is dropped."""
        self._batch.cancel(row)
        self._pages.release(row)
        self._codec.drop(row)

    def step(self, speak: Collection[int], decode: Mapping[int, int]) -> StepResult:
        """Make one frame of some rows, and decode frames of some.

        A step that makes one frame at most waits for the next sound that is on its way.

        Args:
            speak: rows that make a frame if they have the text for it and have not ended.
            decode: how many of its frames that are not decoded, this step's included, a row's sound
                goes on by; fewer where there are fewer.
        """
        began_s = time.perf_counter()
        failed = self._grow(speak)
        began = self._lane.mark()
        with self._lane.entered():
            self._batch.prefill()
            prefilled = self._lane.mark()
            made = self._batch.predict(speak)
            coded = self._lane.mark()
        self._decode(decode, made, coded)
        decoding = self._lane.mark()
        with self._lane.entered():
            self._batch.advance()
            advanced = self._lane.mark()
            step = self._batch.collect()
        # A lone row leaves most of a GPU idle: its sound is not put off to the next step.
        sounds = self._codec.collect(is_waiting=len(made) <= 1)
        self._note(began_s, (began, prefilled, coded, decoding, advanced), len(made))
        frames = (
            Frame(row, code, row in step.ended)
            for row, code in zip(step.made, step.first, strict=True)
        )
        return StepResult(tuple(frames), sounds, failed)

    def _grow(self, speak: Collection[int]) -> tuple[int, ...]:
        """Give rows that have filled their pages another; returns those that get none."""
        failed: list[int] = []
        for row in self._batch.filled(speak):
            try:
                pages = self._pages.take(row, 1)
            except OverloadedError:
                self._batch.end(row)
                failed.append(row)
            else:
                self._batch.set_pages(row, pages)
        return tuple(failed)

    def _decode(self, decode: Mapping[int, int], made: tuple[int, ...], coded: Moment) -> None:
        if decode:
            frames = {row: self._batch.frames(row) + (row in made) for row in decode}
            self._codec.decode(decode, frames, coded)

    def _note(self, began_s: float, moments: tuple[Moment, ...], frames: int) -> None:
        """Read how long the passes took; where frames were made, the host has waited for them."""
        if not frames:
            return
        began, prefilled, coded, decoding, advanced = moments
        timings = self.timings
        timings.steps += 1
        timings.frames += frames
        timings.prefill_s += prefilled.seconds_since(began)
        timings.predictor_s += coded.seconds_since(prefilled)
        timings.talker_s += advanced.seconds_since(decoding)
        timings.codec_s = self._codec.spent_s
        timings.host_s += time.perf_counter() - began_s - advanced.seconds_since(began)
