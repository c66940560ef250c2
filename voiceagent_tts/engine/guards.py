"""Whether a run has lost its text: it is silent, goes in circles, or goes on far beyond its text.

Models that lose their text do not find the end of it either: the chance of an end falls towards
nothing, and waiting does not help. Decides from numbers; knows no tensors, no rows and no text.
"""

from dataclasses import dataclass, field

_SILENT_FRAMES = 62  # five seconds: no pause in a text is that long
_SILENT_FRAMES_AT_FIRST = 25  # two seconds; voices take up to 0.75 s before they begin
_REPEATED_FRAMES = 50  # four seconds: as sampled, no vowel and no laughter repeats for so long
_CYCLE_FRAMES = 12
_STILLBORN_FRAMES = 2
_LEAST_FRAME_CAP = 192
_FRAMES_PER_TEXT_ID = 12


@dataclass(slots=True)
class Watch:
    """What one run has made so far.

    Attributes:
        frames: how many.
        silent_frames: how many of the last ones heard were silent.
        codes: codebook 0 of the last ones.
    """

    frames: int = 0
    silent_frames: int = 0
    codes: list[int] = field(default_factory=list[int])

    def take(self, code: int) -> None:
        """The run has made a frame with `code` in codebook 0."""
        self.frames += 1
        self.codes.append(code)
        if len(self.codes) > _REPEATED_FRAMES:
            del self.codes[0]

    def hear(self, *, is_silent: bool) -> None:
        """The sound of the run's next frame has come."""
        self.silent_frames = self.silent_frames + 1 if is_silent else 0

    @property
    def is_stillborn(self) -> bool:
        """Whether it would be too short for any word if it ended here."""
        return self.frames <= _STILLBORN_FRAMES

    def is_lost(self, max_frames: int | None, *, has_spoken: bool) -> bool:
        """Whether to end the run from outside.

        Args:
            max_frames: the most that its text may take; None where the text is not complete.
            has_spoken: whether its context has been heard.
        """
        if max_frames is not None and self.frames >= max_frames:
            return True
        silent_frames = _SILENT_FRAMES if has_spoken else _SILENT_FRAMES_AT_FIRST
        return self.silent_frames >= silent_frames or self._goes_in_circles()

    def _goes_in_circles(self) -> bool:
        codes = self.codes
        if len(codes) < _REPEATED_FRAMES or codes[-1] not in codes[-1 - _CYCLE_FRAMES : -1]:
            return False
        return any(
            codes[-1] == codes[-1 - length] and codes[length:] == codes[:-length]
            for length in range(1, _CYCLE_FRAMES + 1)
        )


def frame_cap(text_ids: int) -> int:
    """Most frames that a text of so many ids may take: a guard against a model that never ends.

    Speech has about three frames an id. Once the end is unlikely it stays so (in 0.2 to 0.7 % of
    cloned texts, also with the official package), so that a row must be stopped from outside.
    """
    return max(_LEAST_FRAME_CAP, _FRAMES_PER_TEXT_ID * text_ids)
