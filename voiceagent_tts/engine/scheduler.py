"""Who is served next: a decision from deadlines alone.

First audio for new contexts, then whoever runs dry first. Knows no tensors, no text and no time.
"""

from collections.abc import Iterable

from voiceagent_tts.engine.sequence import Speaker


def next_to_start(speakers: Iterable[Speaker]) -> list[Speaker]:
    """Contexts whose next sequence waits for a row, the most urgent first."""
    waiting = (speaker for speaker in speakers if speaker.row is None and speaker.sequences)
    return sorted(filter(_has_credit, waiting), key=_urgency)


def rows_to_step(speakers: Iterable[Speaker]) -> list[int]:
    """Rows whose listeners want audio; the others are not stepped."""
    return [s.row for s in speakers if s.row is not None and s.has_credit]


def _has_credit(speaker: Speaker) -> bool:
    return speaker.has_credit


def _urgency(speaker: Speaker) -> tuple[bool, float, int]:
    deadline = speaker.playout_end if speaker.has_spoken else 0.0
    return speaker.has_spoken, deadline, speaker.arrival
