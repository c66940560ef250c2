"""A clip of any length, as windows that the forced aligner was trained to hear.

A window begins where the last one's certain words ended. At its end a word may be cut off, so that
the next window hears the last seconds again and only what lies before them is kept. Knows no
network: times are numbers that it is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voiceagent_tts.aligner.forced.prompt import Unit
from voiceagent_tts.core import SAMPLE_RATE_HZ

WINDOW_SAMPLES = 300 * SAMPLE_RATE_HZ
"""Longest sound that the model was trained on (arXiv 2601.21337, section 3)."""
_UNSURE_SAMPLES = 10 * SAMPLE_RATE_HZ
"""End of a window whose words the next window is asked for again."""
_LEAST_STEP_SAMPLES = WINDOW_SAMPLES - 2 * _UNSURE_SAMPLES
_UNITS_ABOVE_AVERAGE = 1.25
"""How much faster a window may be spoken than the rest of the clip on average."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a clip, and the units that may be spoken in it, some of them perhaps not."""

    start_sample: int
    end_sample: int
    units: Sequence[Unit]


class WindowedClip:
    """What is known of one clip's units, window by window.

    Args:
        units: of the clip, in order.
        samples: its length at 24 kHz.
    """

    def __init__(self, units: Sequence[Unit], samples: int) -> None:
        self.units = units
        self.samples = samples
        self.times: list[int] = []
        """Start and end of each unit in samples of the clip, as far as they are known."""
        self._start = 0
        if not samples:
            self.times += [0] * 2 * len(units)

    def next_window(self) -> Window | None:
        """What to ask the model next; None where every unit has its times."""
        units = self.units[len(self.times) // 2 :]
        if not units:
            return None
        left = self.samples - self._start
        if left <= WINDOW_SAMPLES:
            return Window(self._start, self.samples, units)
        count = int(len(units) * WINDOW_SAMPLES / left * _UNITS_ABOVE_AVERAGE) + 1
        return Window(self._start, self._start + WINDOW_SAMPLES, units[:count])

    def take(self, window: Window, times: Sequence[int]) -> None:
        """Keep what the model says of a window.

        Args:
            window: the last that `next_window` gave.
            times: start and end of each of its units in samples of the window, non-decreasing.
        """
        in_clip = [window.start_sample + time for time in times]
        if window.end_sample == self.samples:
            self.times += in_clip
            return
        certain = window.end_sample - _UNSURE_SAMPLES
        kept = sum(end <= certain for end in in_clip[1::2])
        self.times += in_clip[: 2 * kept]
        if kept == len(window.units):  # more units than were asked for may be spoken here
            self._start = in_clip[-1]
        else:
            earliest = window.start_sample + _LEAST_STEP_SAMPLES
            self._start = min(max(in_clip[2 * kept], earliest), certain)
