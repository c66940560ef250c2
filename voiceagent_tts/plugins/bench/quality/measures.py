"""The measures of speech's quality: one value for each clip, and what the values mean.

A figure is the mean of its clips' values. Shares are 0 or 100 for each clip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.bench.quality.words import normalised, said_errors, unit_of, word_errors

PRONOUNCED = "pronounced_percent"
HEADINGS = {
    "wer_percent": "WER, %",
    "cer_percent": "CER, %",
    "said_percent": "WER as said, %",
    "insertion_percent": "inserted, %",
    PRONOUNCED: "pronounced, %",
}
"""Name of a measure -> its heading in tables. `said_percent` is the WER with numbers and signs in
words on both sides; `pronounced_percent` the share of sentences heard in an accepted form."""
_PERCENT = 100.0
_MOST_EXAMPLES = 10


@dataclass(slots=True)
class Values:
    """Values of one part of a run, with examples of what went wrong.

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


def pronunciation_values(clips: Sequence[Clip], transcribe: Transcribe) -> Values:
    """Shares of sentences that are heard in one of their accepted forms."""
    values = Values()
    for clip in clips:
        item = clip.item
        heard = transcribe(clip.samples, item.language)
        is_right = is_accepted(heard, (item.text, *item.accepted), item.language)
        values.add(PRONOUNCED, _PERCENT * is_right)
        if not is_right:
            values.examples.append(
                {"item": item.name, "kind": item.kind, "text": item.text, "heard": heard}
            )
    return values


def is_accepted(heard: str, accepted: Sequence[str], language: str) -> bool:
    """Whether a transcript has the words of one of the accepted forms; spaces do not count."""
    found = normalised(heard, language).replace(" ", "")
    return any(normalised(each, language).replace(" ", "") == found for each in accepted)


def by_group(clips: Sequence[Clip], is_kind: bool = False) -> Iterator[tuple[str, list[Clip]]]:
    """Clips by language, and by kind within it if asked, in the order of their first clips."""
    groups: dict[str, list[Clip]] = {}
    for clip in clips:
        name = f"{clip.item.language} {clip.item.kind}" if is_kind else clip.item.language
        groups.setdefault(name, []).append(clip)
    yield from groups.items()
