"""Device state of the rows, and the three passes over it.

`prefill` processes prompts and samples codebook 0 of their first frames, `code_predictor` completes
the current frame of each row, and `talker` computes codebook 0 of the next. A pass runs for some of
the rows, found by their numbers; everything else that the host knows of them is uploaded in one
small matrix. Passes have static shapes, write in place and never wait for the device, so that each
can be captured once and replayed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.engine.cuda_graph import Compile, CompiledCalls, Download, Upload
from voiceagent_tts.engine.row_table import DeviceRecords, RowTable
from voiceagent_tts.engine.sizes import Shapes, fitting
from voiceagent_tts.model.code_predictor import FrameBuffers
from voiceagent_tts.model.kv_pool import KVPool, PagedKVCache
from voiceagent_tts.model.network import Network, PromptIds
from voiceagent_tts.model.prompt import NO_CODEC, Prompt
from voiceagent_tts.model.sampling import LogitRules, Sampler

PassKey = tuple[str, int, int, int]
"""A pass: its name, rows, positions of each row, and the window that it looks back over."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Device state of every row. The last index is a scratch row that pads batches.

    Attributes:
        pool: KV pages of the talker.
        frame_cache: the code predictor's, of one frame.
        hidden: [R, hidden], the talker's state from which the row's next frame follows.
        first: [R] int64, codebook 0 of that frame, or the id that ends the row.
        seen: [R, V] bool, the codes of codebook 0 that the row has had.
        codes: [R, F, K] int16, the frames that the row has made.
    """

    pool: KVPool
    frame_cache: FrameBuffers
    hidden: Tensor
    first: Tensor
    seen: Tensor
    codes: Tensor


def empty_rows(network: Network, rows: int, frames: int, pool: KVPool) -> Rows:
    """State of `rows` rows of at most `frames` frames."""
    talker, device = network.config.talker_config, network.device

    def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(rows + 1, *shape, dtype=dtype, device=device)

    return Rows(
        pool,
        network.code_predictor.new_buffers(rows),
        zeros(talker.hidden_size, dtype=network.talker.codec_embedding.dtype),
        zeros(dtype=torch.int64),
        zeros(talker.vocab_size, dtype=torch.bool),
        zeros(frames, network.codebooks, dtype=torch.int16),
    )


class Passes:
    """Passes over `Rows`, compiled once for each shape."""

    def __init__(
        self,
        network: Network,
        rows: Rows,
        layout: np.dtype,
        shapes: Shapes,
        talker_sampler: Sampler,
        predictor_sampler: Sampler,
        compile: Compile,
    ) -> None:
        self._network, self._rows, self._layout, self._shapes = network, rows, layout, shapes
        self._talker_sampler, self._predictor_sampler = talker_sampler, predictor_sampler
        self.calls = CompiledCalls[PassKey](lambda key: compile(self._function(key)))
        """Compiled passes by key."""
        device, width = network.device, layout.itemsize // 4
        most = max(shapes.rows[-1], shapes.prompt_rows[-1])
        self._records = Upload((most, width), torch.int32, device)
        positions = shapes.prompts[-1]  # of all prompts in a pass
        self._prompts = Upload((positions, network.codebooks + 2), torch.int32, device)
        speakers = (shapes.prompt_rows[-1], network.config.talker_config.hidden_size)
        self._speakers = Upload(speakers, torch.float32, device)
        self._codes = torch.zeros(most, network.codebooks, dtype=torch.int64, device=device)
        self.made = Download((2, most), torch.int32, device)
        """Codebook 0 of the frames that the talker was run for, and of the next: [2, R] int32."""
        self._is_true = torch.ones((), dtype=torch.bool, device=device)

    def keys(self) -> Iterator[PassKey]:
        """Yield every pass that the shapes allow, the largest first."""
        shapes = self._shapes
        for count in reversed(shapes.rows):
            yield "code_predictor", count, 0, 0
            for window in reversed(shapes.windows):
                yield "talker", count, 1, window
        for count in reversed(shapes.prompt_rows):
            for length in reversed(shapes.prompts):
                for window in reversed(shapes.windows):
                    if shapes.allows_prefill(count, length, window):
                        yield "prefill", count, length, window

    def run_largest(self) -> None:
        """Run the largest pass of every kind for the rows that were sent last."""
        largest: dict[str, PassKey] = {}
        for key in self.keys():
            largest.setdefault(key[0], key)
        prefills = (key for key in self.keys() if key[0] == "prefill")
        largest["prefill"] = max(prefills, key=lambda key: (key[1] * key[2], key[3]))
        for key in largest.values():
            self.calls[key]()

    def send(self, records: np.ndarray) -> None:
        """Upload the records of the rows for the passes that follow."""
        self._records.send(records.view(np.int32).reshape(len(records), -1))

    def send_prompts(self, positions: np.ndarray, speakers: np.ndarray) -> None:
        """Upload prompts for `prefill`: [R, T, K + 2] int32 and [R, hidden] float32."""
        self._prompts.send(positions.reshape(-1, positions.shape[-1]))
        self._speakers.send(speakers)

    def run(self, name: str, count: int, length: int = 0, window: int = 0) -> None:
        """Run a pass for the `count` rows that were sent last; see `PassKey`."""
        self.calls[name, count, length, window]()

    def _function(self, key: PassKey) -> Callable[[], None]:
        name, count, length, window = key
        run = {
            "code_predictor": self._run_code_predictor,
            "talker": self._run_talker,
            "prefill": self._run_prefill,
        }
        return lambda: run[name](count, length, window)

    def _device_records(self, count: int) -> DeviceRecords:
        return DeviceRecords(self._records.tensor[:count], self._layout)

    def _run_code_predictor(self, count: int, length: int, window: int) -> None:
        rows, records = self._rows, self._device_records(count)
        slots, noise = records.integer("slot"), records.noise
        settings = records.settings("predictor")
        predictor = self._network.code_predictor

        def choose(logits: Tensor, book: int) -> Tensor:
            return self._predictor_sampler.sample(logits, noise[:, book], settings)

        # The id that ends a row is not a code of the code predictor's vocabulary.
        first = rows.first[slots].clamp(max=predictor.config.vocab_size - 1)
        cache = rows.frame_cache.first(count)
        codes = predictor.complete_frame(rows.hidden[slots], first, cache, choose)
        self._codes[:count] = codes
        rows.codes.index_put_((slots, records.integer("frame")), codes.to(torch.int16))

    def _run_talker(self, count: int, length: int, window: int) -> None:
        network, rows, records = self._network, self._rows, self._device_records(count)
        codes, slots = self._codes[:count], records.integer("slot")
        positions = records.integer("position")[:, None]
        x = network.embed_frames(codes) + network.talker.embed_text(records.integer("text"))
        memory = PagedKVCache(rows.pool, records.table, positions, window)
        hidden = network.talker.run(x[:, None], positions, memory)[:, 0]
        first = self._choose_first(records, hidden, rows.seen[slots])
        rows.hidden.index_copy_(0, slots, hidden)
        rows.first.index_copy_(0, slots, first)
        rows.seen.index_put_((slots, first), self._is_true)
        self.made.tensor[:, :count] = torch.stack((codes[:, 0], first))

    def _run_prefill(self, count: int, length: int, window: int) -> None:
        network, rows, records = self._network, self._rows, self._device_records(count)
        slots, lengths = records.integer("slot"), records.integer("length")
        offsets = torch.arange(length, device=slots.device)
        positions = records.integer("position")[:, None] + offsets
        memory = PagedKVCache(rows.pool, records.table, positions, window)
        x = network.embed_prompt(self._prompt_ids(count, length))
        states = network.talker.run(x, positions, memory)
        last = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[-1])
        hidden = states.gather(1, last)[:, 0]
        seen = torch.zeros(count, rows.seen.shape[1], dtype=torch.bool, device=slots.device)
        first = self._choose_first(records, hidden, seen)
        rows.hidden.index_copy_(0, slots, hidden)
        rows.first.index_copy_(0, slots, first)
        rows.seen.index_copy_(0, slots, seen.scatter(1, first[:, None], True))

    def _prompt_ids(self, count: int, length: int) -> PromptIds:
        ids = self._prompts.tensor[: count * length].long().view(count, length, -1)
        speakers = self._speakers.tensor[:count]
        return PromptIds(ids[..., 0], ids[..., 1], ids[..., 3:], ids[..., 2] > 0, speakers)

    def _choose_first(self, records: DeviceRecords, hidden: Tensor, seen: Tensor) -> Tensor:
        talker, may_end = self._network.talker, records.integer("may_end")[:, None]
        penalty = records.number("penalty")
        rules = LogitRules(seen, penalty, may_end, talker.is_control, talker.is_end)
        logits, settings = talker.logits(hidden), records.settings("talker")
        return self._talker_sampler.sample(logits, records.noise[:, 0], settings, rules)


@dataclass(slots=True)
class Prefill:
    """A prompt on its way to a row's KV pages, of which `begin` positions are there already."""

    row: int
    prompt: Prompt
    begin: int


class Prefiller:
    """Runs prompts through prefill passes: short ones several at a time, and long ones in parts."""

    def __init__(self, network: Network, passes: Passes, table: RowTable, shapes: Shapes) -> None:
        self._passes, self._table, self._shapes = passes, table, shapes
        self._codebooks = network.codebooks
        self._hidden_size = network.config.talker_config.hidden_size

    def run(self, prefills: list[Prefill]) -> None:
        """Process whole prompts."""
        while prefills:
            length = self._next_length(prefills[0])
            self._run_part(self._first_pass(prefills, length), length)
            prefills = [one for one in prefills if one.begin < len(one.prompt)]

    def _first_pass(self, prefills: list[Prefill], length: int) -> list[Prefill]:
        """Return the first prompt and those that fit into one pass with it.

        Several prompts share a pass only at their start.
        """
        first, *others = prefills
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

    def _next_length(self, prefill: Prefill) -> int:
        longest = self._shapes.prompts[-1]
        return fitting(self._shapes.prompts, min(longest, len(prefill.prompt) - prefill.begin))

    def _is_at_start(self, prefill: Prefill, length: int) -> bool:
        return prefill.begin + length <= self._shapes.windows[0]

    def _run_part(self, together: list[Prefill], length: int) -> None:
        records, count = self._table.records, fitting(self._shapes.prompt_rows, len(together))
        positions = np.zeros((count, length, self._codebooks + 2), np.int32)
        positions[..., 1] = NO_CODEC
        speakers = np.zeros((count, self._hidden_size), np.float32)
        reached = max(prefill.begin for prefill in together) + length
        for prefill, of_row, speaker in zip(together, positions, speakers, strict=False):
            part = slice(prefill.begin, min(prefill.begin + length, len(prefill.prompt)))
            _write_prompt(prefill.prompt, part, of_row)
            if prefill.prompt.speaker_embedding is not None:
                speaker[:] = prefill.prompt.speaker_embedding.numpy()
            records["position"][prefill.row] = part.start
            records["length"][prefill.row] = part.stop - part.start
            prefill.begin = part.stop
        rows = np.array([prefill.row for prefill in together])
        self._passes.send(self._table.padded(rows, count))
        self._passes.send_prompts(positions, speakers)
        self._passes.run("prefill", count, length, fitting(self._shapes.windows, reached))
        records["position"][rows] += records["length"][rows]


def _write_prompt(prompt: Prompt, part: slice, positions: np.ndarray) -> None:
    """Write a part of a prompt into `positions` ([T, K + 2]).

    Columns are the text id, the codec id, whether the position is a reference frame, and codes 1 to
    K - 1 of that frame.
    """
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
