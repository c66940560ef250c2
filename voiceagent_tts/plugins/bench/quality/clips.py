"""A clip: a text, and the speech that was made of it."""

from dataclasses import dataclass

from voiceagent_tts.plugins.recordings.recogniser import Samples


@dataclass(frozen=True, slots=True)
class Item:
    """A text to be spoken, and what is known about it.

    Attributes:
        name: its name in reports, and the stem of its recording's file.
        text: the text.
        language: its language code.
    """

    name: str
    text: str
    language: str = "en"


@dataclass(frozen=True, slots=True)
class Clip:
    """An item's speech.

    Attributes:
        item: what was to be said.
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
    """

    item: Item
    samples: Samples
