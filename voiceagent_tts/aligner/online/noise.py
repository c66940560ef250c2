"""What a voice's pauses sound like: the room, the microphone, the codec.

A pause is rarely silent. Its sound is learnt from the quietest of the last frames without a pitch,
so it needs no pause to be known in advance: stops inside words let the room through, too. Frames
are judged by loudness and by spectrum, relative to what is learnt and never to the voice's peak.
This module knows no words and no reference.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voiceagent_tts.aligner.online.features import BANDS, CEPSTRA, Floats, Frames

_VOICING = (0.5, 0.8)
_CONTRASTS = (3.5, 4.5)
_MAX_PAUSE_COSTS = ((6.0, 5.5), (10.0, 6.5))
"""What a frame costs in a pause at most: without a pitch and with one, each at these contrasts of
the voice to the noise. A breath or a click has no pitch and is passed over; so would a consonant
be, but for the cost of a path into a pause. In noise words fit badly, and a vowel costs more than
any of them. In clean speech they fit, so what costs more is no word of the text: a false start, or
a word that is said twice."""
_MIN_PAUSE_COST = np.float32(4.0)
"""Cost of a frame in a pause that sounds like one: a little less than that of a word that fits."""
_TYPICAL_DISTANCE, _COST_PER_DISTANCE = np.float32(1.4), np.float32(3.0)
"""Distance up to which a frame sounds like a pause, and what it costs beyond."""

VOICED = 0.7
"""Voicing from which a frame is no noise: quiet vowels are steady, too."""
SPEECH_DISTANCE = 2.0
"""Distance from which a frame is speech, whose features describe the voice."""
_QUIET_LEVEL = -14.0
"""Log energy (-61 dBFS) below which a frame sounds like a pause while no noise is known."""

_RECENT_FRAMES = 300
_HALF_LIFE_FRAMES = 150
"""Age at which a frame counts half: noise may change from one context to the next. The lowest
loudness counts until its frames are forgotten, so noise that has risen is known no sooner."""
_MIN_FRAMES = 40
"""Frames from which noise is known."""
_STEADY_FRAMES = 5
"""Frames whose mean loudness has to be low: a single quiet frame is chance."""

_LOUDNESS_STEP = 0.1
_LOUDNESS_BELOW, _LOUDNESS_ABOVE = 2.0, 1.4
"""Nats around the lowest steady loudness in which the typical loudness of the noise lies."""
_SMOOTHING = np.array((1, 2, 3, 2, 1)) / 9
_MIN_SPREAD, _MAX_SPREAD = 0.13, 0.8
"""Standard deviation of loudness: of steady noise, and of voices in the background."""
_DEFAULT_SPREAD = 0.25
_NEAR_SPREADS = 1.5
"""Distance from the typical loudness, in standard deviations and beyond the width of a step, within
which frames may be noise."""
_NEAR_DISTANCE = 2.0
"""Mean square distance up to which the spectrum of such a frame is that of the noise."""
_MIN_DEVIATIONS = np.array((3.0, *[0.8] * (CEPSTRA - 1)), np.float32)
"""Least standard deviation of each cepstrum."""
_DEVIATION_OF_MEAN = 1.25
"""Standard deviation of normal values whose mean absolute deviation is 1."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Distribution of the cepstra in pauses.

    Attributes:
        mean: [CEPSTRA] float32.
        deviation: [CEPSTRA] float32, standard deviation.
    """

    mean: Floats
    deviation: Floats

    @property
    def loudness(self) -> float:
        """Mean log energy of a band."""
        return float(self.mean[0]) / BANDS

    def distances(self, cepstra: Floats) -> Floats:
        """How unlike the noise each frame is, [N], in standard deviations.

        The greater of two: that of the whole spectrum, which sees a voice in steady noise, and that
        of loudness alone, which sees a near voice among far ones. A frame quieter than the noise is
        not unlike it.

        Args:
            cepstra: [N, CEPSTRA].
        """
        scaled = (cepstra - self.mean) / self.deviation
        scaled[:, 0] = np.maximum(scaled[:, 0], 0.0)
        return np.maximum(np.sqrt(np.square(scaled).mean(axis=1)), scaled[:, 0])


@dataclass(frozen=True, slots=True)
class NoiseTracker:
    """Follows the sound of a voice's pauses.

    Attributes:
        recent: [N, CEPSTRA] float32, cepstra of the last frames that have no pitch, at most
            `_RECENT_FRAMES`.
    """

    recent: Floats = field(default_factory=lambda: np.zeros((0, CEPSTRA), np.float32))

    def including(self, frames: Frames) -> "NoiseTracker":
        """The tracker with `frames` counted, too: speech and pauses, but no digital silence."""
        unpitched = frames.features[frames.voicing < VOICED, :CEPSTRA]
        if not len(unpitched):
            return self
        return NoiseTracker(np.concatenate((self.recent, unpitched))[-_RECENT_FRAMES:])

    @property
    def noise(self) -> Noise | None:
        """The noise of the pauses; None while too few frames are known."""
        return noise_in(self.recent) if len(self.recent) >= _MIN_FRAMES else None


def distances_from(noise: Noise | None, frames: Frames) -> Floats:
    """How unlike the noise each frame is, [N]; 0.0 or infinite where the noise is not known."""
    if noise is not None:
        return noise.distances(frames.features[:, :CEPSTRA])
    return np.where(frames.log_energies < _QUIET_LEVEL, 0.0, np.inf).astype(np.float32)


def pause_costs(distances: Floats, voicing: Floats, contrast: float) -> Floats:
    """Cost of each frame in a pause, [N].

    Args:
        distances: [N], from the noise.
        voicing: [N], as in `Frames`.
        contrast: how much louder the voice is than the noise, in nats; 0.0 where it is not known.
    """
    excess = np.maximum(distances - _TYPICAL_DISTANCE, np.float32(0.0))
    limits = [float(np.interp(contrast, _CONTRASTS, costs)) for costs in _MAX_PAUSE_COSTS]
    max_costs = np.interp(voicing, _VOICING, limits).astype(np.float32)
    return np.minimum(_MIN_PAUSE_COST + _COST_PER_DISTANCE * excess, max_costs)


def noise_in(cepstra: Floats) -> Noise:
    """The noise in consecutive frames that contain speech, too.

    Args:
        cepstra: [N, CEPSTRA], at least `_STEADY_FRAMES`; the last is the latest.
    """
    weights = 0.5 ** (np.arange(len(cepstra))[::-1] / _HALF_LIFE_FRAMES)
    loudness = cepstra[:, 0] / np.float32(BANDS)
    level = _typical_loudness(loudness, weights)
    spread = _spread_below(level, loudness, weights)
    is_near = np.abs(loudness - level) < _NEAR_SPREADS * spread + _LOUDNESS_STEP
    noise = _noise_of(cepstra[is_near], weights[is_near])
    scaled = (cepstra - noise.mean) / noise.deviation
    is_noise = is_near & (np.square(scaled).mean(axis=1) < _NEAR_DISTANCE)
    if is_noise.any():
        noise = _noise_of(cepstra[is_noise], weights[is_noise])
    noise.deviation[0] = max(noise.deviation[0], BANDS * spread)
    return noise


def _typical_loudness(loudness: Floats, weights: npt.NDArray[np.float64]) -> float:
    """The most frequent loudness near the lowest: speech is spread over many, noise is not."""
    sums = np.cumsum(loudness)
    lowest = float((sums[_STEADY_FRAMES:] - sums[:-_STEADY_FRAMES]).min()) / _STEADY_FRAMES
    start = lowest - _LOUDNESS_BELOW
    bins = round((_LOUDNESS_BELOW + _LOUDNESS_ABOVE) / _LOUDNESS_STEP)
    places = np.floor((loudness - start) / _LOUDNESS_STEP).astype(np.int64)
    is_inside = (places >= 0) & (places < bins)
    counts = np.bincount(places[is_inside], weights[is_inside], bins)
    fullest = int(np.argmax(np.convolve(counts, _SMOOTHING, "same")))
    return start + (fullest + 0.5) * _LOUDNESS_STEP


def _spread_below(level: float, loudness: Floats, weights: npt.NDArray[np.float64]) -> float:
    """Standard deviation of the noise's loudness, from the frames below `level`.

    Speech adds to noise, so no speech is among them.
    """
    is_below = loudness < level
    if not is_below.any():
        return _DEFAULT_SPREAD
    squares = np.square(loudness[is_below] - level)
    variance = float(np.average(squares, weights=weights[is_below]))
    return min(max(variance**0.5, _MIN_SPREAD), _MAX_SPREAD)


def _noise_of(cepstra: Floats, weights: npt.NDArray[np.float64]) -> Noise:
    """Mean and deviation of frames of noise; robust against a few other frames."""
    shares = (weights / weights.sum()).astype(np.float32)
    mean = shares @ cepstra
    deviation = np.float32(_DEVIATION_OF_MEAN) * (shares @ np.abs(cepstra - mean))
    return Noise(mean, np.maximum(deviation, _MIN_DEVIATIONS))
