"""Clicks, cuts and gaps that are planted in speech are found at their places."""

import numpy as np
import pytest

from testbed.quality_clips import changed, loud_places, spoken
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.bench.quality.clips import Clip
from voiceagent_tts.plugins.bench.quality.continuity import (
    find_breaks,
    joint_flux,
    stream_distance_db,
)

SENTENCES = [
    "Please bring the green umbrella back on your way home.",
    "One moment, I am looking it up.",
]
VOICES = ["slt", "rms", "awb"]


def is_found(clip: Clip, at: int, within: int = 6) -> bool:
    """Whether a break is found at a sample."""
    return any(abs(each.at_s * SAMPLE_RATE_HZ - at) <= within for each in find_breaks(clip))


@pytest.mark.parametrize("voice", VOICES)
def test_clean_speech_has_no_break_with_or_without_joints(voice: str) -> None:
    """A stream in pieces of 320 ms changes nothing."""
    for text in SENTENCES:
        clip = spoken(text, voice)
        joints = range(7_680, len(clip.samples), 7_680)
        assert find_breaks(clip) == []
        assert find_breaks(changed(clip, clip.samples, *joints)) == []


@pytest.mark.parametrize("voice", VOICES)
def test_a_click_inside_loud_speech_is_found_at_its_sample(voice: str) -> None:
    """One sample that is off by a tenth of full scale; nineteen of twenty are found."""
    found: list[bool] = []
    clip = spoken(SENTENCES[0], voice)
    for place in loud_places(clip, 20):
        samples = clip.samples.copy()
        samples[place] += 0.1
        found.append(is_found(changed(clip, samples), place))
    assert len(found) == 20 and sum(found) >= 19


def test_a_cut_between_pieces_is_found() -> None:
    """10 ms that are lost at a joint: three of four jumps are found, and said to be at it."""
    found: list[bool] = []
    for voice in VOICES:
        for text in SENTENCES:
            clip = spoken(text, voice)
            for place in loud_places(clip, 20):
                cut = np.concatenate((clip.samples[:place], clip.samples[place + 240 :]))
                breaks = find_breaks(changed(clip, cut, place))
                found.append(any(each.is_joint for each in breaks))
    assert len(found) == 120 and sum(found) >= 90


def test_a_lost_piece_is_a_gap() -> None:
    """50 ms of zeros in loud speech, with the place of their start."""
    clip = spoken(SENTENCES[0])
    found: list[bool] = []
    for place in loud_places(clip, 20):
        samples = clip.samples.copy()
        samples[place : place + 1_200] = 0
        found.append(is_found(changed(clip, samples, place), place))
    assert sum(found) >= 18


def test_joints_of_one_rendition_are_like_any_place() -> None:
    """The spectrum changes at joints as elsewhere; where a piece of other speech begins, more."""
    clip, other = spoken(SENTENCES[0]), spoken(SENTENCES[1], "rms")
    joints = tuple(range(4_800, 24_000, 4_800))
    same = joint_flux(changed(clip, clip.samples, *joints))
    mixed = np.concatenate(
        [(clip, other)[number % 2].samples[at : at + 4_800]
         for number, at in enumerate((0, *joints))]
    )  # fmt: skip
    different = joint_flux(changed(clip, mixed, *joints))
    assert same is not None and different is not None
    assert different > 1.5 * same
    assert joint_flux(clip) is None


def test_equal_renditions_have_no_distance() -> None:
    """A late start, another voice and no sound at all do."""
    one, other = spoken(SENTENCES[0]).samples, spoken(SENTENCES[0], "rms").samples
    assert stream_distance_db(one, one) == 0
    assert stream_distance_db(one, np.concatenate((np.zeros(2_400, np.float32), one))) > 3
    assert stream_distance_db(one, other) > 3
    assert stream_distance_db(one, np.zeros(0, np.float32)) > 3
    assert find_breaks(changed(spoken(SENTENCES[0]), np.zeros(0))) == []
