"""Prompts become codes: rows of one batch, each at its own frame.

`Batch` is the host's view of the rows: numbers and text ids, kept as arrays so that a step costs
the same work however many rows there are. It drives the passes over the rows for texts that are
complete or still arriving. Knows no clock and no audio.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.kernels import make_sampler
from voiceagent_tts.model.kv_pool import (
    PAGE_POSITIONS,
    SCRATCH_PAGE,
    KVPrefix,
    empty_pool,
    pages_for,
    read_prefix,
    write_prefix,
)
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.rows import (
    Compile,
    Passes,
    Shapes,
    empty_rows,
    fitting,
    plainly,
    record_type,
)
from voiceagent_tts.model.sampling import (
    MIN_FRAMES,
    Sampler,
    SamplingBounds,
    SamplingParams,
    TorchSampler,
    uniforms,
)

_WINDOW = 64
"""Without graphs, keys are read in multiples of so many positions."""
_NOISE_FRAMES = 32
"""Random numbers are drawn for so many frames of a row at once."""
_ENDLESS = 2**62
_LEAST_FRAME_CAP = 192
_FRAMES_PER_TEXT_ID = 12


def exact_shapes(rows: int, capacity: int) -> Shapes:
    """Every size as it comes: for passes that are not captured."""
    windows = range(_WINDOW, capacity + _WINDOW, _WINDOW)
    return Shapes(range(1, rows + 1), windows, range(1, capacity + 1))


@dataclass(frozen=True, slots=True)
class Step:
    """What one step made.

    Attributes:
        made: rows that made a frame.
        first: codebook 0 of each of these frames.
        ended: those that make no more frames.
    """

    made: tuple[int, ...]
    first: tuple[int, ...]
    ended: tuple[int, ...]


@dataclass(slots=True)
class _Joining:
    """A prompt that is taken in, as far as it is."""

    row: int
    prompt: Prompt
    begin: int


class _Ledger:
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


class Batch:
    """Rows of one batch.

    Args:
        network: the weights.
        rows: how many texts at once.
        capacity: positions of a row: its prompt and its frames.
        pages: of memory, for all rows; by default as many as they can fill, of which each row has
            its own.
        shapes: that passes come in; by default as they come.
        samplers: how codes are chosen, of the talker and of the code predictor; by default as a row
            asks for.
        compile: made of each pass.
    """

    def __init__(
        self,
        network: Network,
        rows: int,
        capacity: int,
        *,
        pages: int | None = None,
        shapes: Shapes | None = None,
        samplers: tuple[Sampler, Sampler] | None = None,
        compile: Compile = plainly,
    ) -> None:
        self._network, self._capacity = network, capacity
        self._shapes = shapes or exact_shapes(rows, capacity)
        talker = network.config.talker_config
        self._row_pages = pages_for(capacity)
        pages = rows * self._row_pages if pages is None else pages
        pool = empty_pool(talker, pages, network.talker.codec_embedding)
        self._rows = empty_rows(network, rows, capacity, pool)
        columns = pages_for(self._shapes.positions)
        self._ledger = _Ledger(rows, capacity, network.codebooks, columns)
        anything = SamplingBounds(is_sampled=True, top_k=talker.vocab_size, has_top_p=True)
        self._samplers = samplers or (TorchSampler(anything), TorchSampler(anything))
        layout = self._ledger.records.dtype
        self._passes = Passes(
            network, self._rows, layout, self._shapes, *self._samplers, compile=compile
        )
        most = max(self._shapes.rows[-1], self._shapes.prompt_rows[-1])
        self._passes.send(self._padded(np.zeros(0, int), most))  # what is compiled runs for nobody
        self._joining: list[_Joining] = []
        self._made = np.zeros(0, np.int64)
        self._end = talker.codec_eos_token_id

    @property
    def free(self) -> list[int]:
        """Rows that can be joined."""
        return np.flatnonzero(~self._ledger.is_used).tolist()

    @property
    def codes(self) -> Tensor:
        """[R, F, K] int16 on the device: the frames that each row has made."""
        return self._rows.codes

    @property
    def passes(self) -> Passes:
        """The passes, to be compiled ahead."""
        return self._passes

    def codes_of(self, row: int) -> Tensor:
        """[F, K] int64 on the CPU: all frames of a row, until it is joined again."""
        return self._rows.codes[row, : self.frames(row)].to("cpu", torch.int64)

    def frames(self, row: int) -> int:
        """How many frames a row has made."""
        return int(self._ledger.records["frame"][row])

    @torch.inference_mode()
    def join(
        self,
        row: int,
        prompt: Prompt,
        sampling: SamplingParams,
        max_frames: int,
        *,
        is_open: bool = False,
        needs_all_text: bool = False,
        pages: Sequence[int] | None = None,
        prefix: KVPrefix | None = None,
    ) -> None:
        """Start to speak `prompt` in a free row, with the next step.

        Args:
            row: a free one.
            prompt: fits, with one frame, into the row's capacity.
            sampling: how.
            max_frames: the row ends after so many, or where its capacity ends.
            is_open: `feed` brings the rest of the text.
            needs_all_text: the row does not end before it has been fed all of its text, whatever
                the model samples. The official package has no such rule.
            pages: that hold the prompt and one frame; by default all that are the row's own.
            prefix: what was computed of the prompt's first positions, fewer than all.

        Raises:
            InvalidRequestError: codes cannot be chosen as `sampling` asks for.
        """
        ledger = self._ledger
        assert not ledger.is_used[row], row
        self._check(sampling)
        ledger.join(row, sampling, min(max_frames, self._capacity - len(prompt)))
        ledger.is_open[row], ledger.needs_all_text[row] = is_open, needs_all_text
        ledger.write(row, prompt.trailing_text_ids)
        if pages is None:
            pages = range(row * self._row_pages + 1, (row + 1) * self._row_pages + 1)
        ledger.records["pages"][row] = SCRATCH_PAGE
        self.set_pages(row, pages)
        begin = 0
        if prefix is not None:
            begin = prefix.keys.shape[1]
            write_prefix(self._rows.pool, pages, prefix)
        self._joining.append(_Joining(row, prompt, begin))

    def prefix_bytes(self, positions: int) -> int:
        """Memory that so many positions take outside of pages."""
        keys = self._rows.pool.keys
        return 2 * keys[:, 0, 0].numel() * keys.element_size() * positions

    def set_pages(self, row: int, pages: Sequence[int]) -> None:
        """Let a row have these pages, in the order of its positions."""
        self._ledger.records["pages"][row, : len(pages)] = pages
        self._ledger.pages[row] = len(pages)

    def filled(self, rows: Collection[int]) -> list[int]:
        """Those of `rows` that could step if they had another page."""
        wanted = np.array(sorted(rows), np.int64)
        held = self._ledger.pages[wanted] * PAGE_POSITIONS
        is_filled = self._ledger.records["position"][wanted] >= held
        return wanted[is_filled & self._ledger.can_step(wanted)].tolist()

    def end(self, row: int) -> None:
        """Let a row make no more frames."""
        self._ledger.is_over[row] = True

    @torch.inference_mode()
    def prepare(self, prompt: Prompt, pages: Sequence[int]) -> KVPrefix:
        """Compute what prompts that begin with `prompt` have in common, in pages that are free."""
        nobody = len(self._ledger.is_used)
        records = self._ledger.records
        records["pages"][nobody, : len(pages)] = pages
        self._take_in_all([_Joining(nobody, prompt, 0)])
        records["pages"][nobody] = records["position"][nobody] = 0
        records["length"][nobody] = 1
        return read_prefix(self._rows.pool, pages, len(prompt))

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool = False) -> None:
        """More text of an open row; with `is_last` its end is put behind it."""
        end = [self._network.config.tts_eos_token_id] if is_last else []
        self._ledger.write(row, [*text_ids, *end])
        self._ledger.is_open[row] = not is_last

    def cancel(self, row: int) -> None:
        """Free `row`, if it is in use."""
        self._ledger.is_used[row] = False
        self._joining = [joining for joining in self._joining if joining.row != row]

    def step(self, rows: Collection[int] | None = None) -> Step:
        """Make one frame of every row that has the text for it; of `rows` where they are given."""
        self.prefill()
        self.predict(range(len(self._ledger.is_used)) if rows is None else rows)
        self.advance()
        return self.collect()

    @torch.inference_mode()
    def prefill(self) -> None:
        """Take in the prompts of rows that have joined."""
        joining, self._joining = self._joining, []
        self._take_in_all(joining)

    @torch.inference_mode()
    def predict(self, rows: Collection[int]) -> tuple[int, ...]:
        """Let those of `rows` that can complete the frame that they make; returns which these are.

        Followed by `advance`, then `collect`.
        """
        wanted = np.array(sorted(rows), np.int64)
        self._made = wanted[self._ledger.can_step(wanted)]
        if len(self._made):
            self._ledger.prepare(self._made, self._network.config.tts_pad_token_id)
            count = fitting(self._shapes.rows, len(self._made))
            self._passes.send(self._padded(self._made, count))
            self._passes.predict(count)
        return tuple(self._made.tolist())

    @torch.inference_mode()
    def advance(self) -> None:
        """Take the talker one step further in the rows of `predict`."""
        if len(self._made):
            count = fitting(self._shapes.rows, len(self._made))
            reached = int(self._ledger.records["position"][self._made].max()) + 1
            self._passes.advance(count, fitting(self._shapes.step_windows, reached))
            self._ledger.advance(self._made)

    def collect(self) -> Step:
        """What the rows of `predict` have made; waits for the device."""
        if not len(self._made):
            return Step((), (), ())
        made, following = self._passes.receive()[:, : len(self._made)]
        has_ended = (following == self._end) | (self._ledger.frames_left[self._made] == 0)
        self._ledger.is_over[self._made] = has_ended
        ended = self._made[has_ended]
        return Step(tuple(self._made.tolist()), tuple(made.tolist()), tuple(ended.tolist()))

    def _check(self, sampling: SamplingParams) -> None:
        wanted = (sampling.talker, sampling.predictor)
        for sampler, settings in zip(self._samplers, wanted, strict=True):
            if not sampler.covers(settings):
                raise InvalidRequestError(
                    f"expected sampling within what this batch was made for; got {settings}",
                    code=ErrorCode.INVALID_PARAM,
                )

    def _padded(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The records of `rows`, and nobody's up to `count`."""
        nobody = len(self._ledger.is_used)
        return self._ledger.records[np.append(rows, [nobody] * (count - len(rows))).astype(int)]

    def _take_in_all(self, joining: list[_Joining]) -> None:
        """Several prompts at a time, a long one in parts."""
        while joining:
            length = self._next_length(joining[0])
            self._take_in(self._alike(joining, length), length)
            joining = [one for one in joining if one.begin < len(one.prompt)]

    def _alike(self, joining: list[_Joining], length: int) -> list[_Joining]:
        """The first, and those that one pass can take in with it: several only at their start."""
        first, *others = joining
        if not self._is_at_start(first, length):
            return [first]
        fits = [
            one
            for one in others
            if self._next_length(one) == length and self._is_at_start(one, length)
        ]
        positions = self._shapes.prompts[-1]
        most = max(count for count in self._shapes.prompt_rows if count * length <= positions)
        return [first, *fits][:most]

    def _next_length(self, joining: _Joining) -> int:
        longest = self._shapes.prompts[-1]
        return fitting(self._shapes.prompts, min(longest, len(joining.prompt) - joining.begin))

    def _is_at_start(self, joining: _Joining, length: int) -> bool:
        return joining.begin + length <= self._shapes.windows[0]

    def _take_in(self, together: list[_Joining], length: int) -> None:
        """One pass over the next part of each prompt; they are as long, or filled up."""
        records, count = self._ledger.records, fitting(self._shapes.prompt_rows, len(together))
        positions = np.zeros((count, length, self._network.codebooks + 2), np.int32)
        positions[..., 1] = NO_CODEC
        speakers = np.zeros((count, self._network.config.talker_config.hidden_size), np.float32)
        reached = max(joining.begin for joining in together) + length
        for joining, of_row, speaker in zip(together, positions, speakers, strict=False):
            part = slice(joining.begin, min(joining.begin + length, len(joining.prompt)))
            _write_prompt(joining.prompt, part, of_row)
            if joining.prompt.speaker_embedding is not None:
                speaker[:] = joining.prompt.speaker_embedding.numpy()
            records["position"][joining.row] = part.start
            records["length"][joining.row] = part.stop - part.start
            joining.begin = part.stop
        rows = np.array([joining.row for joining in together])
        self._passes.send(self._padded(rows, count))
        self._passes.send_prompts(positions, speakers)
        self._passes.prefill(count, length, fitting(self._shapes.windows, reached))
        records["position"][rows] += records["length"][rows]


def _write_prompt(prompt: Prompt, part: slice, positions: np.ndarray) -> None:
    """Fill columns [T, K + 2]: text, codec, whether a reference frame, and its further codes."""
    size = part.stop - part.start
    positions[:size, 0], positions[:size, 1] = prompt.text_ids[part], prompt.codec_ids[part]
    if prompt.reference_codes is not None:
        before = len(prompt) - len(prompt.reference_codes)
        codes = prompt.reference_codes.numpy()[
            max(0, part.start - before) : max(0, part.stop - before)
        ]
        if len(codes):
            positions[size - len(codes) : size, 2] = 1
            positions[size - len(codes) : size, 3:] = codes[:, 1:]


def frame_cap(text_ids: int) -> int:
    """Most frames that a text of so many ids may take: a guard against a model that never ends.

    Speech has about three frames an id. Once the end is unlikely it stays so (in 0.2 to 0.7 % of
    cloned texts, also with the official package), so that a row must be stopped from outside.
    """
    return max(_LEAST_FRAME_CAP, _FRAMES_PER_TEXT_ID * text_ids)


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be spoken to its end."""

    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_frames: int = 2048


def make_samplers(
    requests: Iterable[SamplingParams], kernels: Kernels = "plain"
) -> tuple[Sampler, Sampler]:
    """What chooses codes for rows that ask for these: of the talker, and of the code predictor."""
    requests = list(requests)
    of_talker = SamplingBounds.of(params.talker for params in requests)
    of_predictor = SamplingBounds.of(params.predictor for params in requests)
    return make_sampler(kernels, of_talker), make_sampler(kernels, of_predictor)


def generate_codes(
    network: Network, requests: Sequence[Request], rows: int, capacity: int = 4096
) -> list[Tensor]:
    """Speak every request, up to `rows` of them at once.

    Returns:
        For each request its frames, [F, K] int64 on the CPU.
    """
    samplers = make_samplers((request.sampling for request in requests), network.kernels)
    batch = Batch(network, min(rows, len(requests)), capacity, samplers=samplers)
    waiting = deque(enumerate(requests))
    speaking: dict[int, int] = {}
    codes: dict[int, Tensor] = {}
    while waiting or speaking:
        for row in batch.free[: len(waiting)]:
            number, request = waiting.popleft()
            batch.join(row, request.prompt, request.sampling, request.max_frames)
            speaking[row] = number
        for row in batch.step().ended:
            codes[speaking.pop(row)] = batch.codes_of(row)
            batch.cancel(row)
    return [codes[number] for number in range(len(requests))]
