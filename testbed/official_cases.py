"""Read a folder of the official package's calls and results, and translate the calls into ours.

The folder has the layout of tests/reference (see its README.md). This module compares nothing.
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
"""Sampling parameters of the official package's calls."""


@dataclass(frozen=True)
class Case:
    folder: Path
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return self.arguments["name"]

    @property
    def checkpoint(self) -> str:
        return self.arguments["checkpoint"]

    @property
    def max_frames(self) -> int:
        """Frame limit: the last token that the official package samples never becomes a frame."""
        return self.arguments["max_new_tokens"] - 1

    @property
    def reference(self) -> str | None:
        """Name of the reference audio of a cloned voice, or None."""
        return self.arguments.get("reference")

    @cached_property
    def codes(self) -> Tensor:
        """[F, K] int64."""
        return torch.from_numpy(self._arrays()["codes"]).long()

    @cached_property
    def samples(self) -> Tensor | None:
        """[S] float32 at 24 kHz, or None if the case stores no audio."""
        wav = self._arrays().get("wav")
        return None if wav is None else torch.from_numpy(wav)

    def voice(self, clone: Cloned | None = None) -> Voice:
        if "speaker" in self.arguments:
            return Preset(self.arguments["speaker"])
        if self.reference is None:
            return Designed()
        clone = clone or official_voice(self.folder, self.reference)
        if self.arguments["x_vector_only"]:
            return Cloned(clone.speaker_embedding)
        return Cloned(clone.speaker_embedding, clone.reference_codes, self.arguments["ref_text"])

    def prompt(self, checkpoint: Checkpoint, clone: Cloned | None = None) -> Prompt:
        return PromptBuilder(checkpoint.config, checkpoint.tokenizer).build(
            self.arguments["text"],
            self.voice(clone),
            self.arguments["language"],
            self.arguments.get("instruct") or "",
            is_streaming=not self.arguments["non_streaming_mode"],
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / f"{self}.npz") as arrays:
            return dict(arrays)


def read_cases(folder: Path) -> list[Case]:
    try:
        listed = json.loads((folder / "cases.json").read_text("utf-8"))["cases"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{folder}: expected a cases.json with cases; {error}") from error
    if not listed:
        raise InvalidRequestError(f"{folder / 'cases.json'}: expected at least one case; got none")
    return [Case(folder, arguments) for arguments in listed]


def official_voice(folder: Path, reference: str) -> Cloned:
    """Return the official package's clone of a reference, without the transcript."""
    with np.load(folder / f"{Path(reference).stem}-prompt.npz") as arrays:
        return Cloned(
            torch.from_numpy(arrays["speaker_embedding"]),
            torch.from_numpy(arrays["ref_code"]).long(),
        )
