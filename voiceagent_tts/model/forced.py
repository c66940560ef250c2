"""What the network would have chosen at every code of a speech that is given.

Two precisions or two implementations are compared code by code this way: after a different choice
their own speeches would have nothing in common. Knows no files.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from voiceagent_tts.model.generate import advance, empty_rows, predict, start
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import Choice, SamplingParams


@dataclass(frozen=True, slots=True)
class Choices:
    """The network's own choices along a given speech.

    Attributes:
        codes: [F, K] int64, the most likely code at each place.
        margins: [F, K] float32, by how much its score is above the next.
    """

    codes: Tensor
    margins: Tensor


class _Dictation:
    """Chooses what it is told, and notes what it would have chosen."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = iter(codes)
        self.best: list[int] = []
        self.margins: list[float] = []

    def set_row(self, row: int, choice: Choice) -> None:
        """Dictated codes leave nothing to choose."""

    def choose(self, scores: Tensor, uniform: Tensor, rows: slice = slice(None)) -> Tensor:
        """The next code of the dictation."""
        values, ids = scores[0].topk(2)
        self.best.append(int(ids[0]))
        self.margins.append(float(values[0] - values[1]))
        return torch.tensor([next(self._codes)], device=scores.device)


@torch.inference_mode()
def choices_along(
    network: Network, prompt: Prompt, codes: Tensor, repetition_penalty: float
) -> Choices:
    """Run the network along `codes` ([F, K], at least one frame), as if it had chosen them."""
    books = network.codebooks
    rows = empty_rows(network, 1, len(prompt) + len(codes))
    talker = _Dictation(codes[:, 0].tolist())
    predictor = _Dictation(codes[:, 1:].flatten().tolist())
    rows = replace(rows, talker_choice=talker, predictor_choice=predictor)
    start(network, rows, 0, prompt, SamplingParams(repetition_penalty=repetition_penalty))
    is_active = torch.ones(1, dtype=torch.bool, device=network.device)
    text = [*prompt.trailing_text_ids, *[network.config.tts_pad_token_id] * len(codes)]
    for frame in range(len(codes)):
        made = predict(network, rows)
        if frame + 1 < len(codes):
            text_id = torch.tensor(text[frame : frame + 1], device=network.device)
            advance(network, rows, made, text_id, is_active, len(prompt) + frame + 1)

    def together(first: list, rest: list) -> Tensor:
        return torch.cat(
            (torch.tensor(first)[:, None], torch.tensor(rest).view(-1, books - 1)), dim=1
        )

    return Choices(
        together(talker.best, predictor.best), together(talker.margins, predictor.margins)
    )
