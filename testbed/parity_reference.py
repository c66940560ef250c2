"""Read the official package's results for the tiny checkpoints (tests/reference/README.md)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from testbed.official_cases import GREEDY, Case, official_voice, read_cases
from voiceagent_tts.model.checkpoint import Checkpoint
from voiceagent_tts.model.prompt import Cloned

__all__ = ["GREEDY", "REFERENCE", "Case", "LoadTiny", "all_cases", "reference_voice"]

REFERENCE = Path(__file__).parents[1] / "tests" / "reference"

LoadTiny = Callable[[str], Checkpoint]


def reference_voice(text: str = "quick brown fox") -> Cloned:
    """Return the voice that the official package cloned from reference.wav."""
    return replace(official_voice(REFERENCE, "reference.wav"), reference_text=text)


def all_cases() -> list[Case]:
    return read_cases(REFERENCE)
