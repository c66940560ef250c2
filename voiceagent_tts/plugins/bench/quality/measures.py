"""The measures of speech's quality: one value for each clip, and what the values mean.

A figure is the mean of its clips' values. Shares are 0 or 100 for each clip.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from voiceagent_tts.plugins.bench.quality import artifacts
from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.continuity import (
    find_breaks,
    joint_flux,
    stream_distance_db,
)
from voiceagent_tts.plugins.bench.quality.transcribers import Transcribe
from voiceagent_tts.plugins.bench.quality.words import normalised, said_errors, unit_of, word_errors

_PERCENT = 100.0
_MOST_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Measure:
    """What a figure says.

    Attributes:
        heading: its name in tables, with the unit.
        title: what it measures.
        is_lower_better: the direction of improvement; None where neither is better.
    """

    heading: str
    title: str
    is_lower_better: bool | None = True


_SHARE = "share of clips with"
MEASURES = {
    "wer_percent": Measure("WER, %", "errors per expected word, mean of the utterances"),
    "cer_percent": Measure("CER, %", "errors per expected character, mean of the utterances"),
    "said_percent": Measure("WER as said, %", "the same, numbers and signs in words on both sides"),
    "insertion_percent": Measure("inserted, %", "words heard that are not in the text"),
    "pronounced_percent": Measure("pronounced, %", "sentences heard in an accepted form", False),
    "artifact_percent": Measure("artifacts, %", f"{_SHARE} any of the next five defects"),
    "noise_percent": Measure("noise, %", f"{_SHARE} a burst of noise of 90 ms"),
    "silence_percent": Measure("silence, %", f"{_SHARE} no sound, or a pause of 1.2 s"),
    "repetition_percent": Measure("repetition, %", f"{_SHARE} speech that is heard twice"),
    "too_long_percent": Measure("too long, %", f"{_SHARE} much more speech than the text needs"),
    "too_short_percent": Measure("too short, %", f"{_SHARE} much less speech than the text needs"),
    "click_percent": Measure("clicks, %", f"{_SHARE} a jump in the waveform"),
    "gap_percent": Measure("gaps, %", f"{_SHARE} silence inside sound"),
    "joint_break_percent": Measure("at joints, %", f"{_SHARE} either where pieces meet"),
    "joint_flux": Measure("joint flux", "spectral change at joints over that elsewhere", None),
    "stream_distance_db": Measure("stream, dB", "streamed from whole rendition, first second"),
    "similarity": Measure("similarity", "cosine of speaker embeddings, clip and reference", False),
    "own_voice_percent": Measure("own voice, %", "clips nearest to their own reference", False),
}
"""Name -> measure, in the order of tables."""


_RATES = ("wer_percent", "cer_percent", "said_percent", "insertion_percent")


def is_share(name: str) -> bool:
    """Whether a measure's values are 0 or 100."""
    return name.endswith("_percent") and name not in _RATES


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

    def add_share(self, name: str, is_so: bool) -> None:
        """Append one clip's 0 or 100."""
        self.add(name, _PERCENT * is_so)


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
        values.add_share("pronounced_percent", is_right)
        if not is_right:
            values.examples.append(
                {"item": item.name, "kind": item.kind, "text": item.text, "heard": heard}
            )
    return values


def is_accepted(heard: str, accepted: Sequence[str], language: str) -> bool:
    """Whether a transcript has the words of one of the accepted forms; spaces do not count."""
    found = normalised(heard, language).replace(" ", "")
    return any(normalised(each, language).replace(" ", "") == found for each in accepted)


def artifact_values(clips: Sequence[Clip]) -> Values:
    """Shares of clips with each defect."""
    values = Values()
    for clip in clips:
        findings = artifacts.find_artifacts(clip)
        values.add_share("artifact_percent", bool(findings))
        kinds = {finding.kind for finding in findings}
        for kind in artifacts.KINDS:
            values.add_share(f"{kind.replace(' ', '_')}_percent", kind in kinds)
        values.examples += [
            {"item": clip.item.name, "text": clip.item.text, "finding": finding.kind,
             "at_s": round(finding.start_s, 2), "length_s": round(finding.length_s, 2)}
            for finding in findings
        ]  # fmt: skip
    return values


def continuity_values(streamed: Sequence[Clip], whole: Sequence[Clip]) -> Values:
    """Breaks of streamed clips, and their distance from the same items spoken whole."""
    values = Values()
    by_name = {clip.item.name: clip for clip in whole}
    for clip in streamed:
        breaks = find_breaks(clip)
        for kind in ("click", "gap"):
            values.add_share(f"{kind}_percent", any(each.kind == kind for each in breaks))
        if clip.joints:
            values.add_share("joint_break_percent", any(each.is_joint for each in breaks))
        if (flux := joint_flux(clip)) is not None:
            values.add("joint_flux", flux)
        if (twin := by_name.get(clip.item.name)) is not None:
            distance_db = stream_distance_db(clip.samples, twin.samples)
            values.add("stream_distance_db", distance_db)
        values.examples += [
            {"item": clip.item.name, "finding": each.kind, "at_s": round(each.at_s, 4),
             "is_joint": each.is_joint} for each in breaks
        ]  # fmt: skip
    return values


def by_group(clips: Sequence[Clip], is_kind: bool = False) -> Iterator[tuple[str, list[Clip]]]:
    """Clips by language, and by kind within it if asked, in the order of their first clips."""
    groups: dict[str, list[Clip]] = {}
    for clip in clips:
        name = f"{clip.item.language} {clip.item.kind}" if is_kind else clip.item.language
        groups.setdefault(name, []).append(clip)
    yield from groups.items()
