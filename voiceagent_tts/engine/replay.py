"""What the network would have chosen at every code of a speech that is given.

Two precisions or two implementations are compared code by code this way: after a different choice
their own speeches would have nothing in common. Knows no files.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from voiceagent_tts.engine.batch import Batch
from voiceagent_tts.model.network import Network
from voiceagent_tts.model.prompt import Prompt
from voiceagent_tts.model.sampling import (
    LogitRules,
    RowSettings,
    SamplingParams,
    SamplingSettings,
    codebook0_scores,
)


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
    """Chooses what it is told, and notes what it would have chosen; at its end, anything."""

    def __init__(self, codes: list[int]) -> None:
        self._codes = iter(codes)
        self.best: list[int] = []
        self.margins: list[float] = []

    def covers(self, settings: SamplingSettings) -> bool:
        """Dictated codes leave nothing to choose."""
        return True

    def sample(
        self,
        logits: Tensor,
        uniform: Tensor,
        settings: RowSettings,
        rules: LogitRules | None = None,
    ) -> Tensor:
        """The next code of the dictation."""
        scores = logits.float() if rules is None else codebook0_scores(logits, rules)
        values, ids = scores[0].topk(2)
        self.best.append(int(ids[0]))
        self.margins.append(float(values[0] - values[1]))
        return torch.tensor([next(self._codes, 0)], device=scores.device)


def choices_along(
    network: Network, prompt: Prompt, codes: Tensor, repetition_penalty: float
) -> Choices:
    """Run the network along `codes` ([F, K], at least one frame), as if it had chosen them.

    The last frame may be the end: it has codebook 0 alone, and its other choices are 0.
    """
    frames, books = codes.shape
    talker = _Dictation(codes[:, 0].tolist())
    predictor = _Dictation(codes[:, 1:].flatten().tolist())
    batch = Batch(network, 1, len(prompt) + frames, samplers=(talker, predictor))
    batch.join(0, prompt, SamplingParams(repetition_penalty=repetition_penalty), frames)
    for _ in range(frames):
        batch.step()

    def together(first: list, rest: list) -> Tensor:
        of_end = [0] * (frames * (books - 1) - len(rest))
        of_predictor = torch.tensor([*rest, *of_end]).view(-1, books - 1)
        return torch.cat((torch.tensor(first[:frames])[:, None], of_predictor), dim=1)

    return Choices(
        together(talker.best, predictor.best), together(talker.margins, predictor.margins)
    )
