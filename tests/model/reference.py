"""What the official package made of the tiny checkpoints (tests/reference/README.md)."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, Prompt, PromptBuilder, Voice
from voiceagent_tts.model.sampling import Choice, SamplingParams

REFERENCE = Path(__file__).parents[1] / "reference"
GREEDY = SamplingParams(Choice(is_sampled=False), Choice(is_sampled=False))


@dataclass(frozen=True)
class Case:
    """One call of the official package and its result."""

    arguments: dict[str, Any]

    def __str__(self) -> str:
        return self.arguments["name"]

    @property
    def checkpoint(self) -> str:
        """Name of the checkpoint's folder."""
        return self.arguments["checkpoint"]

    @property
    def max_frames(self) -> int:
        """The last token that the official package samples is never expanded into a frame."""
        return self.arguments["max_new_tokens"] - 1

    @property
    def voice(self) -> Voice:
        """Who speaks."""
        if "speaker" in self.arguments:
            return Preset(self.arguments["speaker"])
        if "reference" not in self.arguments:
            return Designed()
        if self.arguments["x_vector_only"]:
            return Cloned(reference_voice().speaker_embedding)
        return reference_voice(self.arguments["ref_text"])

    @property
    def codes(self) -> Tensor:
        """[F, K] int64."""
        with np.load(REFERENCE / f"{self}.npz") as arrays:
            return torch.from_numpy(arrays["codes"]).long()

    def prompt(self, checkpoint: Checkpoint) -> Prompt:
        """The prompt for the same call."""
        return PromptBuilder(checkpoint.config, checkpoint.tokenizer).build(
            self.arguments["text"],
            self.voice,
            self.arguments["language"],
            self.arguments.get("instruct") or "",
            is_streaming=not self.arguments["non_streaming_mode"],
        )


@cache
def reference_voice(text: str = "quick brown fox") -> Cloned:
    """The clone prompt that the official package made of reference.wav."""
    with np.load(REFERENCE / "reference-prompt.npz") as arrays:
        return Cloned(
            torch.from_numpy(arrays["speaker_embedding"]),
            torch.from_numpy(arrays["ref_code"]).long(),
            text,
        )


def all_cases() -> list[Case]:
    """Every case of the reference."""
    return [Case(case) for case in json.loads((REFERENCE / "cases.json").read_text())["cases"]]
