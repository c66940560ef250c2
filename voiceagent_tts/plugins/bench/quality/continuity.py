"""Finds clicks and gaps in speech, above all where received pieces meet, and compares streams.

A click is a sample whose sixth difference stands out from those around it: a jump in the waveform.
Differences pass what speech has least of, the highest frequencies, of which a jump is full. A gap
is a run of silent samples that sound meets without a slope, as when a piece is lost. The joints, at
which received pieces meet, are known, so that a weaker jump counts there: few samples are looked
at. `stream_distance_db` compares the same speech streamed and whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from voiceagent_tts.core import SAMPLE_RATE_HZ, ms_to_samples
from voiceagent_tts.plugins.bench.quality.artifacts import runs
from voiceagent_tts.plugins.bench.quality.clips import Clip, Samples
from voiceagent_tts.plugins.bench.quality.spectra import Values, levels_db, log_mel, powers

_ORDER = 6
_AROUND_SAMPLES = ms_to_samples(10)
_OWN_SAMPLES = 8
"""Differences that one jump reaches, on each side."""
_CLICK, _JOINT_CLICK = 4.0, 2.0
"""Difference over the largest around it. Speech without a click stays below 2.8; below 1.6 at
places that are chosen before."""
_JOINT_SAMPLES = 2
_LEAST_DIFFERENCE = 0.1
"""Of a jump by 0.005 of full scale."""
_LEAST_AROUND = 0.003
"""Differences of PCM16's rounding."""
_SILENT = 1.5 / 32_768
_GAP_SAMPLES = ms_to_samples(4)
_EDGE_LEVEL = 0.03
_EDGE_SAMPLES = 2
_DB_PER_NEPER = 10 / np.log(10)


@dataclass(frozen=True, slots=True)
class Break:
    """A discontinuity.

    Attributes:
        kind: `click` or `gap`.
        at_s: where it is.
        is_joint: whether pieces of the stream meet there.
    """

    kind: str
    at_s: float
    is_joint: bool


def find_breaks(clip: Clip) -> list[Break]:
    """The clicks and gaps of a clip, in no order."""
    return [*_clicks(clip), *_gaps(clip)]


def joint_flux(clip: Clip) -> float | None:
    """Spectral flux at the joints over that of all frames (medians); 1 for joints unheard of.

    None without joints inside the speech.
    """
    bands = log_mel(powers(clip.samples))
    flux = np.abs(np.diff(bands, axis=0)).mean(axis=1)
    level_db = levels_db(clip.samples)
    is_speech = (level_db > np.percentile(level_db, 95) - 30)[1:]
    hop = ms_to_samples(10)
    places = [joint // hop - 1 for joint in clip.joints if 0 < joint // hop - 1 < len(flux)]
    at_joints = [flux[place] for place in places if is_speech[place]]
    if not at_joints or not is_speech.any():
        return None
    return float(np.median(at_joints) / np.median(flux[is_speech]))


def stream_distance_db(streamed: Samples, whole: Samples, first_s: float = 1.0) -> float:
    """Log-spectral distance of two renditions in their first second, in dB; 0 if they are equal.

    Root mean square over 24 mel bands and all frames; what one of them lacks is silence.
    """
    count = min(round(first_s * SAMPLE_RATE_HZ), max(len(streamed), len(whole)))
    one, other = (np.resize(np.pad(each, (0, count)), count) for each in (streamed, whole))
    bands = [np.maximum(log_mel(powers(each)), -11.5) for each in (one, other)]
    return float(np.sqrt(np.square(bands[0] - bands[1]).mean()) * _DB_PER_NEPER)


def _clicks(clip: Clip) -> Iterator[Break]:
    ratios = _ratios(clip.samples)
    near_joint = np.zeros(len(ratios), np.bool_)
    for joint in clip.joints:
        near_joint[max(0, joint - _ORDER - _JOINT_SAMPLES) : joint + _JOINT_SAMPLES] = True
    places = np.flatnonzero(ratios > np.where(near_joint, _JOINT_CLICK, _CLICK))
    for group in np.split(places, np.flatnonzero(np.diff(places) > _OWN_SAMPLES) + 1):
        if len(group):
            place = int(group[ratios[group].argmax()])
            at_s = (place + _ORDER // 2) / SAMPLE_RATE_HZ
            yield Break("click", at_s, bool(near_joint[group].any()))


def _ratios(samples: Samples) -> Values:
    """Each sixth difference over the largest within 10 ms, less those of the same jump."""
    differences = np.abs(np.diff(samples.astype(np.float64), _ORDER))
    if not len(differences):
        return differences
    window = _AROUND_SAMPLES - _OWN_SAMPLES
    padded = np.pad(differences, _AROUND_SAMPLES)
    largest = np.lib.stride_tricks.sliding_window_view(padded, window).max(axis=1)
    before = largest[: len(differences)]
    after = largest[_AROUND_SAMPLES + _OWN_SAMPLES :][: len(differences)]
    ratios = differences / np.maximum(np.maximum(before, after), _LEAST_AROUND)
    return np.where(differences < _LEAST_DIFFERENCE, 0.0, ratios)


def _gaps(clip: Clip) -> Iterator[Break]:
    levels = np.abs(clip.samples)
    for start, end in runs(levels <= _SILENT):
        before, after = levels[max(0, start - _EDGE_SAMPLES) : start], levels[end:][:_EDGE_SAMPLES]
        edge = min(before.max(initial=0.0), after.max(initial=0.0))
        if end - start >= _GAP_SAMPLES and edge >= _EDGE_LEVEL:
            is_joint = any(start - _JOINT_SAMPLES <= joint <= end for joint in clip.joints)
            yield Break("gap", start / SAMPLE_RATE_HZ, is_joint)
