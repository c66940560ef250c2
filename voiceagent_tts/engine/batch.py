"""Prompts become codes: rows of one batch, each at its own frame.

`Batch` is the host's view of the rows: numbers and text ids, kept as arrays so that a step costs
the same work however many rows there are. It drives the passes over the rows for texts that are
complete or still arriving. Knows no clock and no audio.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.engine.cuda_graph import Compile, plainly
from voiceagent_tts.engine.passes import Passes, empty_rows
from voiceagent_tts.engine.prefixes import KVPrefix, read_prefix, write_prefix
from voiceagent_tts.engine.row_table import RowTable
from voiceagent_tts.engine.sizes import Shapes, exact_shapes, fitting
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.kv_pool import PAGE_POSITIONS, SCRATCH_PAGE, empty_pool, pages_for
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.sampling import (
    Sampler,
    SamplingBounds,
    SamplingParams,
    TorchSampler,
)


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
        self._table = RowTable(rows, capacity, network.codebooks, columns)
        anything = SamplingBounds(is_sampled=True, top_k=talker.vocab_size, has_top_p=True)
        self._samplers = samplers or (TorchSampler(anything), TorchSampler(anything))
        layout = self._table.records.dtype
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
        return np.flatnonzero(~self._table.is_used).tolist()

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
        return int(self._table.records["frame"][row])

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
        table = self._table
        assert not table.is_used[row], row
        self._check(sampling)
        table.join(row, sampling, min(max_frames, self._capacity - len(prompt)))
        table.is_open[row], table.needs_all_text[row] = is_open, needs_all_text
        table.write(row, prompt.trailing_text_ids)
        if pages is None:
            pages = range(row * self._row_pages + 1, (row + 1) * self._row_pages + 1)
        table.records["pages"][row] = SCRATCH_PAGE
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
        self._table.records["pages"][row, : len(pages)] = pages
        self._table.pages[row] = len(pages)

    def filled(self, rows: Collection[int]) -> list[int]:
        """Those of `rows` that could step if they had another page."""
        wanted = np.array(sorted(rows), np.int64)
        held = self._table.pages[wanted] * PAGE_POSITIONS
        is_filled = self._table.records["position"][wanted] >= held
        return wanted[is_filled & self._table.can_step(wanted)].tolist()

    def end(self, row: int) -> None:
        """Let a row make no more frames."""
        self._table.is_over[row] = True

    @torch.inference_mode()
    def prepare(self, prompt: Prompt, pages: Sequence[int]) -> KVPrefix:
        """Compute what prompts that begin with `prompt` have in common, in pages that are free."""
        nobody = len(self._table.is_used)
        records = self._table.records
        records["pages"][nobody, : len(pages)] = pages
        self._take_in_all([_Joining(nobody, prompt, 0)])
        records["pages"][nobody] = records["position"][nobody] = 0
        records["length"][nobody] = 1
        return read_prefix(self._rows.pool, pages, len(prompt))

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool = False) -> None:
        """More text of an open row; with `is_last` its end is put behind it."""
        end = [self._network.config.tts_eos_token_id] if is_last else []
        self._table.write(row, [*text_ids, *end])
        self._table.is_open[row] = not is_last

    def cancel(self, row: int) -> None:
        """Free `row`, if it is in use."""
        self._table.is_used[row] = False
        self._joining = [joining for joining in self._joining if joining.row != row]

    def step(self, rows: Collection[int] | None = None) -> Step:
        """Make one frame of every row that has the text for it; of `rows` where they are given."""
        self.prefill()
        self.code_predictor_step(range(len(self._table.is_used)) if rows is None else rows)
        self.talker_step()
        return self.collect()

    @torch.inference_mode()
    def prefill(self) -> None:
        """Take in the prompts of rows that have joined."""
        joining, self._joining = self._joining, []
        self._take_in_all(joining)

    @torch.inference_mode()
    def code_predictor_step(self, rows: Collection[int]) -> tuple[int, ...]:
        """Let those of `rows` that can complete the frame that they make; returns which these are.

        Followed by `talker_step`, then `collect`.
        """
        wanted = np.array(sorted(rows), np.int64)
        self._made = wanted[self._table.can_step(wanted)]
        if len(self._made):
            self._table.prepare(self._made, self._network.config.tts_pad_token_id)
            count = fitting(self._shapes.rows, len(self._made))
            self._passes.send(self._padded(self._made, count))
            self._passes.code_predictor_step(count)
        return tuple(self._made.tolist())

    @torch.inference_mode()
    def talker_step(self) -> None:
        """Take the talker one step further in the rows of `code_predictor_step`."""
        if len(self._made):
            count = fitting(self._shapes.rows, len(self._made))
            reached = int(self._table.records["position"][self._made].max()) + 1
            self._passes.talker_step(count, fitting(self._shapes.step_windows, reached))
            self._table.advance(self._made)

    def collect(self) -> Step:
        """What the rows of `code_predictor_step` have made; waits for the device."""
        if not len(self._made):
            return Step((), (), ())
        made, following = self._passes.receive()[:, : len(self._made)]
        has_ended = (following == self._end) | (self._table.frames_left[self._made] == 0)
        self._table.is_over[self._made] = has_ended
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
        nobody = len(self._table.is_used)
        return self._table.records[np.append(rows, [nobody] * (count - len(rows))).astype(int)]

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
        records, count = self._table.records, fitting(self._shapes.prompt_rows, len(together))
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
