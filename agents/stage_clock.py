"""Splits the latency of voice turns into stages, and reports percentiles of each stage.

A turn's latency runs from the end of the user's speech to the first audible sample of the agent.
The stages follow each other without gaps, so their sum is the turn's latency. This module knows no
audio, no host and no clock: times are passed in, in seconds of `time.monotonic()`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


class Stage(enum.Enum):
    """A stage of a turn's latency; each starts where the stage before it ends."""

    VAD = "VAD"
    """From the end of speech until voice activity detection reports the end of the turn."""
    STT = "STT"
    """Until the transcript is complete."""
    LLM = "LLM"
    """Until the language model's first token."""
    TTS = "TTS"
    """Until the first audible sample is played."""


STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True)
class TurnLatency:
    """The latency of one turn, in seconds.

    Attributes:
        stages: length of each stage.
    """

    stages: Mapping[Stage, float]

    @property
    def total_s(self) -> float:
        """From the end of the user's speech to the first audible sample."""
        return sum(self.stages.values())


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 95th percentile of a latency over all turns, in milliseconds."""

    p50_ms: int
    p95_ms: int


class StageClock:
    """Measures the stages of one turn at a time, and collects the turns that were answered.

    Attributes:
        turns: the turns whose answer became audible, in order.
    """

    def __init__(self) -> None:
        self.turns: list[TurnLatency] = []
        self._marks: list[float] = []  # the end of speech, then the end of each stage; in order

    def start_turn(self, speech_ended_at_s: float) -> None:
        """The user's speech ended; a turn without audible answer is dropped."""
        self._marks = [speech_ended_at_s]

    def drop_turn(self) -> None:
        """The current turn gets no answer."""
        self._marks = []

    def end_stage(self, stage: Stage, at_s: float) -> None:
        """Record the end of `stage`; ignored without a turn, and where another stage comes next.

        A stage may have ended before: each token ends the LLM's. Or it belongs to the reply of the
        turn before, which still starts while the user makes a sound.
        """
        if not self._marks or stage is not STAGES[len(self._marks) - 1]:
            return
        self._marks.append(at_s)
        if stage is STAGES[-1]:
            starts_and_ends = zip(STAGES, self._marks, self._marks[1:], strict=False)
            self.turns.append(
                TurnLatency({name: end - start for name, start, end in starts_and_ends})
            )
            self._marks = []

    def percentiles(self) -> dict[str, Percentiles]:
        """Percentiles of each stage by its name, and of the `total`; empty without turns."""
        if not self.turns:
            return {}
        columns = {stage.value: [turn.stages[stage] for turn in self.turns] for stage in STAGES}
        columns["total"] = [turn.total_s for turn in self.turns]
        return {name: _percentiles(seconds) for name, seconds in columns.items()}


def _percentiles(seconds: list[float]) -> Percentiles:
    p50_s, p95_s = np.percentile(seconds, (50, 95))
    return Percentiles(round(1000 * p50_s), round(1000 * p95_s))
