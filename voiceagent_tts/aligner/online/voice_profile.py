"""The aligner's knowledge of a voice: its usual spectrum and its pace.

Everything here is causal: a frame is judged by itself and the frames before it.
"""

from dataclasses import dataclass, field

import numpy as np

from voiceagent_tts.aligner.online.features import Floats, Frames, amplitudes_of
from voiceagent_tts.aligner.online.phone_model import phone_model

_HALF_LIFE_FRAMES = 1_000
"""Age at which a frame counts half (10 s): a speaker moves, a recording is made anew."""
_UNKNOWN_WEIGHT = 10.0
"""Weight of the typical voice before anything is heard: that of 25 ms of ordinary speech, or of a
second of speech that is 30 dB quieter."""
_TYPICAL_AMPLITUDE = 8.0
"""Mean amplitude of ordinary speech, each frame weighted by its own: 4 to 8 for two voices of flite
whose loudest 20 ms are at -12 dBFS."""
_MAX_RELATIVE_WEIGHT = 2.0
"""Maximum weight of a frame, relative to the voice's mean amplitude: a bang or a whistle, louder
than the voice, would else be taken for the voice for as long as it is remembered."""
_MAX_COUNTED_FRAMES = 3_000
"""Reference frames (half a minute of speech) after which the pace adapts no more slowly."""


@dataclass(frozen=True, slots=True)
class UsualSpectrum:
    """Running mean of a voice's spectra, in which loud frames count more.

    A frame's weight is its amplitude, so a voice that is 20 dB above the noise of its room counts
    ten times as much as the room. No decision is needed about which frames are speech, and so no
    wrong one can confirm itself.

    Attributes:
        weight: sum of the weights of all frames, halved every `_HALF_LIFE_FRAMES`.
        total: [BANDS] float32, weighted sum of the spectra.
        amplitude: mean of the frames' weights, each weighted by itself.
    """

    weight: float = _UNKNOWN_WEIGHT
    total: Floats = field(default_factory=lambda: _UNKNOWN_WEIGHT * phone_model().typical_spectrum)
    amplitude: float = _TYPICAL_AMPLITUDE

    def including(self, spectra: Floats) -> "UsualSpectrum":
        """The mean with the next frames' `spectra` [N, BANDS] counted too."""
        heaviest = np.float32(_MAX_RELATIVE_WEIGHT * self.amplitude)
        weights = np.minimum(amplitudes_of(spectra), heaviest)
        kept = np.float32(0.5 ** (len(spectra) / _HALF_LIFE_FRAMES))
        before, added = float(kept) * self.weight, float(weights.sum())
        squares = before * self.amplitude + float(np.square(weights).sum())
        return UsualSpectrum(
            before + added, kept * self.total + weights @ spectra, squares / (before + added)
        )

    @property
    def mean(self) -> Floats:
        """[BANDS] float32."""
        return (self.total / self.weight).astype(np.float32)


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
        """The rate with more words counted, also by their frames at the normal pace."""
        total = self.frames + normal_frames
        ratio = (self.duration_ratio * self.frames + frames) / total
        return SpeakingRate(min(max(ratio, 0.5), 2.0), min(total, _MAX_COUNTED_FRAMES))


@dataclass(slots=True)
class VoiceProfile:
    """One voice, shared by all of its contexts: each context uses what the others have learnt."""

    usual_spectrum: UsualSpectrum = field(default_factory=UsualSpectrum)
    rate: SpeakingRate = field(default_factory=SpeakingRate)

    def sound_costs(self, frames: Frames) -> Floats:
        """Learn from the next frames of audio; return [N, SOUNDS], how badly each sound fits."""
        self.usual_spectrum = self.usual_spectrum.including(frames.own_spectra)
        return phone_model().costs(frames.spectra, self.usual_spectrum.mean)
