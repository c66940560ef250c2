"""Finds the network's own choice at every code of given frames (teacher forcing).

This compares two precisions or two implementations code by code. If each generated freely, their
frames would have nothing in common after the first different choice. Knows no files.
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
    Sampler,
    SamplingBounds,
    SamplingParams,
    SamplingSettings,
    corrected_scores,
)


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of the network along given frames.

    Attributes:
        codes: [F, K] int64, the most likely code at each place.
        margins: [F, K] float32, score of that code minus the second-best score.
    """

    codes: Tensor
    margins: Tensor


class _GivenCodes(Sampler):
    """Sampler that returns given codes, then zeros, and records the most likely ones."""

    def __init__(self, codes: list[int]) -> None:
        super().__init__(SamplingBounds())
        self._codes = iter(codes)
        self.best: list[int] = []
        self.margins: list[float] = []

    def sample(
        self,
        logits: Tensor,
        uniform: Tensor,
        settings: RowSettings,
        rules: LogitRules | None = None,
    ) -> Tensor:
        scores = corrected_scores(logits, rules)
        values, ids = scores[0].topk(2)
        self.best.append(int(ids[0]))
        self.margins.append(float(values[0] - values[1]))
        return torch.tensor([next(self._codes, 0)], device=scores.device)


def choices_along(
    network: Network, prompt: Prompt, codes: Tensor, repetition_penalty: float
) -> Choices:
    """Run the network along `codes` as if it had sampled them.

    Args:
        network: the network.
        prompt: the prompt before the frames.
        codes: [F, K], at least one frame. The last frame may be the end of the sequence; then only
            its codebook 0 counts, and the choices for its other codebooks are 0.
        repetition_penalty: penalty on codes of codebook 0 that occurred before.
    """
    frames, books = codes.shape
    talker = _GivenCodes(codes[:, 0].tolist())
    predictor = _GivenCodes(codes[:, 1:].flatten().tolist())
    batch = Batch(network, 1, len(prompt) + frames, samplers=(talker, predictor))
    greedy = SamplingSettings(is_sampled=False)
    batch.join(0, prompt, SamplingParams(greedy, greedy, repetition_penalty), frames)
    for _ in range(frames):
        batch.step()

    def together(first: list, rest: list) -> Tensor:
        of_end = [0] * (frames * (books - 1) - len(rest))
        of_predictor = torch.tensor([*rest, *of_end]).view(-1, books - 1)
        return torch.cat((torch.tensor(first[:frames])[:, None], of_predictor), dim=1)

    return Choices(
        together(talker.best, predictor.best), together(talker.margins, predictor.margins)
    )
