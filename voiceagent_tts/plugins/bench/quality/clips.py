"""A clip: a text, and the speech that was made of it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Item:
    """A text to be spoken, and what is known about it.

    Attributes:
        name: its name in reports, and the stem of its recording's file.
        text: the text.
        language: its language code.
        kind: its kind, such as `menu` or `names`.
    """

    name: str
    text: str
    language: str = "en"
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Clip:
    """An item's speech.

    Attributes:
        item: what was to be said.
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
    """

    item: Item
    samples: Samples
