"""The measures of speech's quality: one value for each clip; a figure is their mean."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from voiceagent_tts.plugins.bench.quality.test_sets import Item
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.recordings.recogniser import Samples
from voiceagent_tts.plugins.recordings.word_errors import said_errors, unit_of, word_errors

HEADINGS = {
    "wer_percent": "WER, %",
    "cer_percent": "CER, %",
    "said_percent": "WER as said, %",
    "insertion_percent": "inserted, %",
}
"""Name of a measure -> its heading in tables. `said_percent` is the WER with numbers and signs in
words on both sides."""
_PERCENT = 100.0
_MOST_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Clip:
    """An item's speech.

    Attributes:
        item: what was to be said.
        samples: [S] float32 in [-1, 1], mono, 24 kHz.
    """

    item: Item
    samples: Samples


@dataclass(slots=True)
class Values:
    """Values of one section of a run, with examples of what went wrong.

    Attributes:
        of: measure -> one value for each clip that has one.
        examples: the worst clips, each as an object.
    """

    of: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    examples: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, name: str, value: float) -> None:
        """Append one clip's value."""
        self.of.setdefault(name, []).append(value)


def word_values(clips: Sequence[Clip], transcribe: Transcribe) -> Values:
    """Word or character error rates, and insertions."""
    values = Values()
    for clip in clips:
        item = clip.item
        heard = transcribe(clip.samples, item.language)
        errors = word_errors(item.text, heard, item.language)
        said_percent = _PERCENT * said_errors(item.text, heard, item.language).rate
        values.add(f"{unit_of(item.language).lower()}_percent", _PERCENT * errors.rate)
        values.add("said_percent", said_percent)
        values.add("insertion_percent", _PERCENT * errors.insertion_rate)
        values.examples.append(
            {"item": item.name, "percent": round(said_percent, 1), "text": item.text,
             "heard": heard}
        )  # fmt: skip
    values.examples.sort(key=lambda each: -each["percent"])
    values.examples = [each for each in values.examples if each["percent"]][:_MOST_EXAMPLES]
    return values


def by_language(clips: Sequence[Clip]) -> dict[str, list[Clip]]:
    """Clips by their language, in the order of their first clips."""
    groups: dict[str, list[Clip]] = {}
    for clip in clips:
        groups.setdefault(clip.item.language, []).append(clip)
    return groups
