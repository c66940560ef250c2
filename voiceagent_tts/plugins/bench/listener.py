"""A listener that plays audio on arrival: when each sample is played, and underruns.

Times are seconds of any one clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.core import SAMPLE_RATE_HZ, PlayoutClock

_LEAST_UNDERRUN_S = 0.5 / SAMPLE_RATE_HZ
"""Half a sample: below it, two sums of the same times differ by rounding."""


@dataclass(frozen=True, slots=True)
class Playback:
    """Playback of an utterance.

    Args:
        starts: when the first sample of each message is played.
        lateness_s: for each message but the first, its arrival minus the time when all audio before
            it has been played; a positive value is an underrun of that length.
    """

    starts: tuple[float, ...]
    lateness_s: tuple[float, ...]

    @property
    def underruns(self) -> int:
        """How often playback reached audio that had not arrived."""
        return sum(late > _LEAST_UNDERRUN_S for late in self.lateness_s)

    @property
    def underrun_s(self) -> float:
        """Total length of the underruns."""
        return sum(late for late in self.lateness_s if late > _LEAST_UNDERRUN_S)


def play(times: Sequence[float], sizes: Sequence[int]) -> Playback:
    """Play messages of `sizes` samples that arrive at `times`, without initial buffering."""
    clock = PlayoutClock()
    starts: list[float] = []
    lateness_s: list[float] = []
    for arrival, samples in zip(times, sizes, strict=True):
        if starts:
            lateness_s.append(arrival - clock.playout_end)
        starts.append(max(arrival, clock.playout_end))
        clock.send(samples, arrival)
    return Playback(tuple(starts), tuple(lateness_s))
