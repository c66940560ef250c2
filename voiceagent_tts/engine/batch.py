"""Generates codes from prompts in the rows of a static batch, each row at its own frame.

`Batch` keeps the host's view of the rows and drives the passes over them. A row's text may be
complete when the row starts, or may be fed while the row runs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.engine.cuda_graph import Compile, plainly
from voiceagent_tts.engine.passes import Passes, Prefill, Prefiller, empty_rows
from voiceagent_tts.engine.row_table import RowTable
from voiceagent_tts.engine.sizes import Shapes, exact_shapes, fitting
from voiceagent_tts.model.kv_pool import (
    PAGE_POSITIONS,
    SCRATCH_PAGE,
    KVPrefix,
    empty_pool,
    pages_for,
    read_prefix,
    write_prefix,
)
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import Sampler, SamplingBounds, SamplingParams


@dataclass(frozen=True, slots=True)
class Step:
    """Frames of one decode step.

    Attributes:
        first: code of codebook 0 in each of these frames, in the order of `made`.
        ended: rows of `made` that make no more frames.
    """

    made: tuple[int, ...]
    first: tuple[int, ...]
    ended: tuple[int, ...]


class Batch:
    """Static batch of rows that generate codes.

    Args:
        capacity: positions of a row: its prompt and its frames.
        pages: number of KV pages of all rows together; by default as many as the rows can fill.
        shapes: shapes that passes are padded to; by default nothing is padded.
        samplers: samplers of the talker and of the code predictor; by default they accept any
            settings.
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
        self._pages = rows * self._row_pages if pages is None else pages
        pool = empty_pool(talker, self._pages, network.talker.codec_embedding)
        self._rows = empty_rows(network, rows, capacity, pool)
        columns = pages_for(self._shapes.positions)
        self._table = RowTable(rows, capacity, network.codebooks, columns)
        anything = SamplingBounds(is_sampled=True, top_k=talker.vocab_size, has_top_p=True)
        self._samplers = samplers or (Sampler(anything), Sampler(anything))
        layout = self._table.records.dtype
        self.codes = self._rows.codes
        """[R + 1, F, K] int16 on the device: frames of every row, and of the scratch row."""
        self.passes = Passes(
            network, self._rows, layout, self._shapes, *self._samplers, compile=compile
        )
        most = max(self._shapes.rows[-1], self._shapes.prompt_rows[-1])
        nothing = np.zeros(0, int)
        self.passes.send(self._table.padded(nothing, most))  # captures run on the scratch row
        self._prefiller = Prefiller(network, self.passes, self._table, self._shapes)
        self._prefills: list[Prefill] = []
        self._made = np.zeros(0, np.int64)
        self._end = talker.codec_eos_token_id

    @property
    def free(self) -> list[int]:
        """Rows that can start a prompt."""
        return np.flatnonzero(~self._table.is_used).tolist()

    def codes_of(self, row: int) -> Tensor:
        """Return all frames of a row, [F, K] int64 on the CPU; valid until the row starts again."""
        return self.codes[row, : self.frames(row)].to("cpu", torch.int64)

    def frames(self, row: int) -> int:
        """Return the number of frames that a row has made."""
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
        """Start `prompt` in a free row, with the next step; it fits there together with one frame.

        A row also ends at its capacity. While it `is_open`, `feed` brings the rest of the text. One
        that `needs_all_text` continues until it has been fed all of its text, whatever the model
        samples: the official package has no such rule. Its KV pages have room for the prompt and
        one frame; by default they are its own, which requires as many pages as the rows can fill.
        `prefix` has the keys and values of the prompt's first positions, but not of all. `sampling`
        is within the bounds of the samplers.
        """
        table = self._table
        assert not table.is_used[row], row
        talker, predictor = self._samplers
        assert talker.bounds.covers(sampling.talker), sampling
        assert predictor.bounds.covers(sampling.predictor), sampling
        if pages is None:
            pages = range(row * self._row_pages + 1, (row + 1) * self._row_pages + 1)
            assert pages[-1] <= self._pages, f"row {row} has no pages of its own"
        table.join(row, sampling, min(max_frames, self._capacity - len(prompt)))
        table.is_open[row], table.needs_all_text[row] = is_open, needs_all_text
        table.write(row, prompt.trailing_text_ids)
        table.records["pages"][row] = SCRATCH_PAGE
        self.set_pages(row, pages)
        begin = 0
        if prefix is not None:
            begin = prefix.keys.shape[1]
            write_prefix(self._rows.pool, pages, prefix)
        self._prefills.append(Prefill(row, prompt, begin))

    def prefix_bytes(self, positions: int) -> int:
        """Return the memory of a `KVPrefix` of this many positions, in bytes."""
        keys = self._rows.pool.keys
        return 2 * keys[:, 0, 0].numel() * keys.element_size() * positions

    def set_pages(self, row: int, pages: Sequence[int]) -> None:
        """Assign pages to a row, in the order of its positions."""
        self._table.records["pages"][row, : len(pages)] = pages
        self._table.pages[row] = len(pages)

    def full_rows(self, rows: Collection[int]) -> list[int]:
        """Return those of `rows` that need another page for the frame that they can make next."""
        wanted = np.array(sorted(rows), np.int64)
        held = self._table.pages[wanted] * PAGE_POSITIONS
        is_full = self._table.records["position"][wanted] >= held
        return wanted[is_full & self._table.can_step(wanted)].tolist()

    @torch.inference_mode()
    def prepare(self, prompt: Prompt, pages: Sequence[int]) -> KVPrefix:
        """Compute the keys and values of a prompt's beginning, using `pages`, which are free."""
        assert len(pages) >= pages_for(len(prompt)), (pages, len(prompt))
        scratch, records = self._table.scratch, self._table.records
        records["pages"][scratch, : len(pages)] = pages
        try:
            self._prefiller.run([Prefill(scratch, prompt, 0)])
        finally:
            records["pages"][scratch] = records["position"][scratch] = 0
            records["length"][scratch] = 1
        return read_prefix(self._rows.pool, pages, len(prompt))

    def feed(self, row: int, text_ids: Iterable[int], *, is_last: bool = False) -> None:
        """Append text ids to an open row; with `is_last`, append the end of text and close it."""
        end = [self._network.config.tts_eos_token_id] if is_last else []
        self._table.write(row, [*text_ids, *end])
        self._table.is_open[row] = not is_last

    def cancel(self, row: int) -> None:
        """Free `row`; idempotent."""
        self._table.is_used[row] = False
        self._prefills = [prefill for prefill in self._prefills if prefill.row != row]

    def step(self, rows: Collection[int] | None = None) -> Step:
        """Make one frame of each row (by default, of all rows) that has the text for it."""
        self.prefill()
        self.code_predictor_step(range(len(self._table.is_used)) if rows is None else rows)
        self.talker_step()
        self.send_back()
        return self.collect()

    @torch.inference_mode()
    def prefill(self) -> None:
        """Process the prompts of rows that have started since the last step."""
        prefills, self._prefills = self._prefills, []
        self._table.begin(np.array([prefill.row for prefill in prefills], np.int64))
        self._prefiller.run(prefills)

    @torch.inference_mode()
    def code_predictor_step(self, rows: Collection[int]) -> tuple[int, ...]:
        """Run the code predictor for those of `rows` that can make a frame; return those rows.

        Call `talker_step`, `send_back` and then `collect` afterwards.
        """
        wanted = np.array(sorted(rows), np.int64)
        self._made = wanted[self._table.can_step(wanted)]
        if len(self._made):
            self._table.prepare(self._made, self._network.config.tts_pad_token_id)
            count = fitting(self._shapes.rows, len(self._made))
            self.passes.send(self._table.padded(self._made, count))
            self.passes.run("code_predictor", count)
        return tuple(self._made.tolist())

    @torch.inference_mode()
    def talker_step(self) -> None:
        """Run the talker for the rows of the last `code_predictor_step`."""
        if len(self._made):
            count = fitting(self._shapes.rows, len(self._made))
            reached = int(self._table.records["position"][self._made].max()) + 1
            self.passes.run("talker", count, 1, fitting(self._shapes.windows, reached))
            self._table.advance(self._made)

    @torch.inference_mode()
    def send_back(self) -> None:
        """Start to copy what `talker_step` has made to the host."""
        if len(self._made):
            self.passes.made.send()

    def collect(self) -> Step:
        """Wait for the device, and return what the rows of the last step have made."""
        if not len(self._made):
            return Step((), (), ())
        made, following = self.passes.made.receive()[:, : len(self._made)]
        has_ended = (following == self._end) | (self._table.frames_left[self._made] == 0)
        self._table.is_over[self._made] = has_ended
        ended = self._made[has_ended]
        return Step(tuple(self._made.tolist()), tuple(made.tolist()), tuple(ended.tolist()))
