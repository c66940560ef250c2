"""Runs prompts through prefill passes: short ones several at a time, and long ones in parts.

Knows no sequences and no frames.
"""

from dataclasses import dataclass

import numpy as np

from voiceagent_tts.engine.passes import Passes
from voiceagent_tts.engine.row_table import RowTable
from voiceagent_tts.engine.sizes import Shapes, fitting
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import NO_CODEC, Prompt


@dataclass(slots=True)
class Prefill:
    """A prompt on its way into the KV pages of a row.

    Attributes:
        row: index of the row.
        prompt: the whole prompt.
        begin: number of positions that are in the pages already.
    """

    row: int
    prompt: Prompt
    begin: int


class Prefiller:
    """Chooses which prompts share a pass, and runs the passes.

    Args:
        network: the weights, of which this needs the sizes.
        passes: the passes.
        table: the host's table of the rows.
        shapes: shapes that passes are padded to.
    """

    def __init__(self, network: Network, passes: Passes, table: RowTable, shapes: Shapes) -> None:
        self._passes, self._table, self._shapes = passes, table, shapes
        self._codebooks = network.codebooks
        self._hidden_size = network.config.talker_config.hidden_size

    def run(self, prefills: list[Prefill]) -> None:
        """Process whole prompts, short ones several at a time and long ones in parts."""
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
        """Run one pass over the next part of each prompt, padded to `length` positions."""
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
        self._passes.prefill(count, length, fitting(self._shapes.windows, reached))
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
