"""What the aligner knows about a voice: level, feature statistics, pauses, vocal tract and pace.

Features of different voices become comparable when each voice's mean and variance are removed
(cepstral mean and variance normalisation). Everything here is causal: a frame is judged by the
frames before it. This module knows no words and no reference.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from voiceagent_tts.aligner.online.features import (
    BANDS,
    CEPSTRA,
    WIDTH,
    Booleans,
    Floats,
    Frames,
)
from voiceagent_tts.aligner.online.noise import (
    SPEECH_DISTANCE,
    VOICED,
    NoiseTracker,
    distances_from,
    pause_costs,
)

VTLN_WARPS = (0.95, 1.05, 1.15, 1.25)
"""Warp factors tried for an unknown voice: from a man's to a woman's vocal tract, relative to the
embedded voice's."""
WARP_TRIAL_FRAMES = 200
"""Speech frames after which the warp with the lowest cost is chosen."""

_AUDIBLE_RANGE = 10.0
"""A frame is silent if its log energy is this far below the voice's level: 43 dB. What is left out
is neither speech nor noise that could be taken for speech; pauses are found without this."""
_LEVEL_FALL = np.float32(0.01)
"""By how much the level falls with each frame that has a pitch and is quieter: about 4 dB a second.
Speakers move away, and a voice may be made anew from a quieter recording."""
SILENT_LEVEL = -20.0
"""Log energy (-87 dBFS) below which every frame is silent."""
_MAX_COUNTED_FRAMES = 12_000
"""Frames (two minutes of speech) after which a running mean adapts no more slowly."""
_MIN_VARIANCE = np.float32(1e-4)
_WEIGHT_DECAY_CEPSTRA = 9.0
"""Higher cepstra describe the voice more and the word less, so their weight decays."""


def _weights() -> Floats:
    """Weight of each feature, [WIDTH], with mean square 1."""
    weights = np.tile(np.exp(-np.arange(CEPSTRA) / _WEIGHT_DECAY_CEPSTRA), WIDTH // CEPSTRA)
    return (weights / np.sqrt(np.square(weights).mean())).astype(np.float32)


_WEIGHTS = _weights()


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """Running mean and mean square of features.

    Attributes:
        frames: number of frames counted, at most `_MAX_COUNTED_FRAMES`.
        mean: [WIDTH] float32.
        square: [WIDTH] float32, mean of the squares.
    """

    frames: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(WIDTH, np.float32))
    square: Floats = field(default_factory=lambda: np.ones(WIDTH, np.float32))

    def including(self, features: Floats) -> "FeatureStatistics":
        """The statistics with `features` [N, WIDTH] counted too."""
        total = self.frames + len(features)
        if not len(features):
            return self
        share = np.float32(len(features) / total)
        return FeatureStatistics(
            min(total, _MAX_COUNTED_FRAMES),
            self.mean + share * (features.mean(axis=0) - self.mean),
            self.square + share * (np.square(features).mean(axis=0) - self.square),
        )

    def normalized(self, features: Floats) -> Floats:
        """`features` minus the mean, divided by the standard deviation, weighted; [N, WIDTH]."""
        variance = np.maximum(self.square - np.square(self.mean), _MIN_VARIANCE)
        return np.multiply(features - self.mean, _WEIGHTS / np.sqrt(variance), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class SpeakingRate:
    """How long a voice takes for its words, relative to the embedded voice at its normal pace.

    Attributes:
        duration_ratio: above 1.0 where the voice is slower than the embedded voice.
        frames: frames of the embedded voice at its normal pace that the ratio rests on.
    """

    duration_ratio: float = 1.0
    frames: float = 100.0

    def including(self, frames: int, normal_frames: float) -> "SpeakingRate":
        """The rate with more words counted.

        Args:
            frames: duration of the words in this voice.
            normal_frames: their duration in the embedded voice at its normal pace.
        """
        total = self.frames + normal_frames
        ratio = (self.duration_ratio * self.frames + frames) / total
        return SpeakingRate(min(max(ratio, 0.5), 2.0), min(total, _MAX_COUNTED_FRAMES / 4))


@dataclass(frozen=True, slots=True)
class SpeechNormalizer:
    """Drops one voice's silent frames and normalises the features of the others.

    Attributes:
        level: log energy of the loudest frame, of late (`_LEVEL_FALL`).
        statistics: statistics of the speech frames so far.
    """

    level: float = SILENT_LEVEL
    statistics: FeatureStatistics = field(default_factory=FeatureStatistics)

    def drop_silence(self, frames: Frames) -> tuple["SpeechNormalizer", Frames]:
        """Return the normalizer updated by the level of `frames`, and the audible frames."""
        fall = _LEVEL_FALL * np.cumsum(np.append(0, frames.voicing >= VOICED), dtype=np.float32)
        log_energies = np.append(np.float32(self.level), frames.log_energies)
        levels = np.maximum.accumulate(log_energies + fall) - fall
        floor = np.maximum(levels[1:] - _AUDIBLE_RANGE, SILENT_LEVEL)
        audible = frames.select(frames.log_energies > floor)
        return replace(self, level=float(levels[-1])), audible

    def normalize(self, audible: Frames, is_speech: Booleans) -> tuple["SpeechNormalizer", Frames]:
        """Return the normalizer updated by the speech in `audible`, and all of it, normalised.

        Args:
            audible: frames that are not silent.
            is_speech: [N], which of them describe the voice.
        """
        statistics = self.statistics.including(audible.features[is_speech])
        features = statistics.normalized(audible.features)
        return replace(self, statistics=statistics), replace(audible, features=features)


@dataclass(slots=True)
class VoiceProfile:
    """One voice, shared by all of its contexts: each context uses what the others have learnt.

    Attributes:
        normalizer: level and feature statistics.
        noise: sound of its pauses.
        rate: speaking rate.
        vtln_warp: ratio of its frequencies to the embedded voice's; None while unknown.
        prior_costs: [VTLN_WARPS] float32, how much more each warp has cost than the best one, in
            the contexts that ended while the warp was unknown.
        trial_frames: speech frames that `prior_costs` rest on.
    """

    normalizer: SpeechNormalizer = field(default_factory=SpeechNormalizer)
    noise: NoiseTracker = field(default_factory=NoiseTracker)
    rate: SpeakingRate = field(default_factory=SpeakingRate)
    vtln_warp: float | None = None
    prior_costs: Floats = field(default_factory=lambda: np.zeros(len(VTLN_WARPS), np.float32))
    trial_frames: int = 0

    def observe(self, frames: Frames) -> tuple[Frames, Floats]:
        """Learn from the next frames of audio.

        Returns:
            The audible ones, normalised; and [N], the cost of each of them in a pause.
        """
        normalizer, audible = self.normalizer.drop_silence(frames)
        self.noise = self.noise.including(frames.select(frames.log_energies > SILENT_LEVEL))
        if not len(audible):
            self.normalizer = normalizer
            return audible, audible.log_energies
        noise = self.noise.noise
        distances = distances_from(noise, audible)
        self.normalizer, audible = normalizer.normalize(audible, distances > SPEECH_DISTANCE)
        loudness = float(self.normalizer.statistics.mean[0]) / BANDS
        contrast = 0.0 if noise is None else loudness - noise.loudness
        return audible, pause_costs(distances, audible.voicing, contrast)

    def add_trial(self, frames: int, costs: Floats) -> None:
        """Count a context that ended, and choose the warp once there is enough evidence.

        Args:
            frames: speech frames of the context.
            costs: [VTLN_WARPS], cost of each warp in that context.
        """
        prior_costs = self.prior_costs + costs
        self.prior_costs = prior_costs - prior_costs.min()
        self.trial_frames += frames
        if self.vtln_warp is None and self.trial_frames >= WARP_TRIAL_FRAMES:
            self.vtln_warp = VTLN_WARPS[int(np.argmin(self.prior_costs))]
