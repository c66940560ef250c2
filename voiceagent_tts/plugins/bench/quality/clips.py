"""A clip: a text, and the speech that was made of it."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from voiceagent_tts.core import SAMPLE_RATE_HZ

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Item:
    """A text to be spoken, and what is known about it.

    Attributes:
        name: its name in reports, and the stem of its recording's file.
        text: the text.
        language: its language code.
        kind: its kind, such as `menu` or `dates`.
        reference: recording of the voice that is to speak it; None without one.
        reference_text: what is said in that recording.
        accepted: transcripts that are right, for an item of pronunciation.
        seed: seed of the voice.
    """

    name: str
    text: str
    language: str = "en"
    kind: str = ""
    reference: Path | None = None
    reference_text: str = ""
    accepted: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Clip:
    """An item's speech.

    Attributes:
        item: what was to be said.
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
        joints: positions in samples at which one received piece ends and the next begins.
    """

    item: Item
    samples: Samples
    joints: tuple[int, ...] = field(default=())

    @property
    def duration_s(self) -> float:
        """Length of the speech."""
        return len(self.samples) / SAMPLE_RATE_HZ
