"""What the official package made of some checkpoints: a folder of cases, and their calls of ours.

The layout is that of tests/reference (its README.md). Knows how a call of the official package is
written here, and judges nothing.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.prompt import Cloned, Designed, Preset, Prompt, PromptBuilder, Voice
from voiceagent_tts.model.sampling import SamplingParams, SamplingSettings

GREEDY = SamplingParams(SamplingSettings(is_sampled=False), SamplingSettings(is_sampled=False))
"""How the official package was called."""


@dataclass(frozen=True)
class Case:
    """One call of the official package and its result.

    Attributes:
        folder: of all cases.
        arguments: the call, as cases.json has it.
    """

    folder: Path
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
    def reference(self) -> str | None:
        """Name of the reference audio, of a cloned voice."""
        return self.arguments.get("reference")

    @cached_property
    def codes(self) -> Tensor:
        """[F, K] int64."""
        return torch.from_numpy(self._arrays()["codes"]).long()

    @cached_property
    def samples(self) -> Tensor | None:
        """[S] float32 at 24 kHz, of a case that has kept its sound."""
        wav = self._arrays().get("wav")
        return None if wav is None else torch.from_numpy(wav)

    def voice(self, heard: Cloned | None = None) -> Voice:
        """Who speaks.

        Args:
            heard: what to clone; by default what the official package heard in the reference.
        """
        if "speaker" in self.arguments:
            return Preset(self.arguments["speaker"])
        if self.reference is None:
            return Designed()
        heard = heard or official_voice(self.folder, self.reference)
        if self.arguments["x_vector_only"]:
            return Cloned(heard.speaker_embedding)
        return Cloned(heard.speaker_embedding, heard.reference_codes, self.arguments["ref_text"])

    def prompt(self, checkpoint: Checkpoint, heard: Cloned | None = None) -> Prompt:
        """The prompt for the same call."""
        return PromptBuilder(checkpoint.config, checkpoint.tokenizer).build(
            self.arguments["text"],
            self.voice(heard),
            self.arguments["language"],
            self.arguments.get("instruct") or "",
            is_streaming=not self.arguments["non_streaming_mode"],
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{self}.npz") as arrays:
            return dict(arrays)


def read_cases(folder: Path) -> list[Case]:
    """Every case of a folder.

    Raises:
        InvalidRequestError: there are none.
    """
    try:
        listed = json.loads((folder / "cases.json").read_text("utf-8"))["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{folder}: expected a cases.json with cases; {error}") from error
    if not listed:
        raise InvalidRequestError(f"{folder / 'cases.json'}: expected at least one case; got none")
    return [Case(folder, arguments) for arguments in listed]


def official_voice(folder: Path, reference: str) -> Cloned:
    """What the official package heard in a reference audio; what it says is up to a case."""
    with np.load(folder / f"{Path(reference).stem}-prompt.npz") as arrays:
        return Cloned(
            torch.from_numpy(arrays["speaker_embedding"]),
            torch.from_numpy(arrays["ref_code"]).long(),
        )
