"""The benchmarks of the watermark: clips and verdicts are what they say."""

import itertools

import numpy as np
import pytest

from benchmarks.watermark.clips import CLIP_S, cut, of_espeak, of_noise, of_tones
from benchmarks.watermark.false_alarms import examine
from voiceagent_tts.core import SAMPLE_RATE_HZ


@pytest.mark.thorough
def test_clips_are_sound_and_differ() -> None:
    """Every clip has its length and sound; no two are equal."""
    kinds = (of_espeak(), of_noise(), of_tones())
    clips = [clip for kind in kinds for clip in itertools.islice(kind, 4)]
    assert {len(clip) for clip in clips} == {round(CLIP_S * SAMPLE_RATE_HZ)}
    assert all(0.05 < np.abs(clip).max() <= 1 for clip in clips)
    assert len({clip.tobytes() for clip in clips}) == len(clips)


def test_clips_do_not_overlap() -> None:
    """Every sample is in one clip at most."""
    clips = list(cut(np.arange(100, dtype=np.float32), 30))
    assert np.array_equal(np.concatenate(clips), np.arange(90))


def test_unmarked_clips_are_counted() -> None:
    """The figures of a kind of audio are of all its clips."""
    figures = examine(itertools.islice(of_noise(), 3), seed=1)
    assert figures["clips"] == 3 and figures["false_alarms"] == 0
    assert 0 < figures["highest_score"] < figures["threshold"]
