"""The network of hibari in two parts: phonemes to durations and pitch, and these to spectra.

The first part reads a whole text and takes a few milliseconds for it. The second one looks only
`_REACH_FRAMES` to each side, so it can make the spectra of a text piece by piece, as they are
needed.

Source: `hibari.onnx` of hibari-tts 0.2.1; its README has the inputs and outputs.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.hibari.vocoder import HOP_SAMPLES, Vocoder
from voiceagent_tts.phonemes import graph
from voiceagent_tts.phonemes.network import Floats

_FRAMES_PER_DURATION = 2  # durations count frames of 25 ms
_DURATIONS, _PITCH = "/Clip_output_0", "f0"
_FEATURES = "/Concat_43_output_0"
"""What the decoder reads of each frame: the phoneme's vector, the pitch and the energy."""
_SPECTRA = "/head/Add_output_0"
_REACH_FRAMES = 27
"""Frames to each side that shape a spectrum: 3 for each of nine convolutions of width 7."""
_BORDER_ID = 0  # before the first and after the last phoneme


@dataclass(frozen=True, slots=True)
class Prosody:
    """How a phoneme string is said.

    Attributes:
        borders: first frame of each phoneme, and the number of frames. [0] is the first frame of
            the first phoneme; frames before it are silence.
        features: [C, F] what the decoder reads.
        pitch_hz: [F]; not positive where unvoiced.
    """

    borders: tuple[int, ...]
    features: Floats
    pitch_hz: Floats

    @property
    def frames(self) -> int:
        """Length of the speech, with the silence at both of its ends."""
        return len(self.pitch_hz)

    def cut_near(self, frame: int) -> int:
        """Return `frame`: the samples of two parts overlap, so any frame will do."""
        return frame


class Network:
    """One voice, and a JSON file with the id of each phoneme.

    Threads may share it: each runs it on a core of its own.

    Raises:
        CheckpointError: the file is not one of hibari's.
    """

    hop_samples = HOP_SAMPLES
    part_frames = (24, 60, 160)
    """The first part takes as little time as possible; in later ones the 54 frames that the network
    reads beside them count less."""

    def __init__(self, model: Path, vocabulary: Path) -> None:
        self._ids: dict[str, int] = json.loads(vocabulary.read_text("utf-8"))
        try:
            content = model.read_bytes()
            first = (["ids", "speed"], [_DURATIONS, _FEATURES, _PITCH])
            self._prosody = graph.session(graph.cut(content, *first))
            self._decoder = graph.session(graph.cut(content, [_FEATURES], [_SPECTRA]))
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"{model}: expected a voice of hibari-tts 0.2, got {type(error).__name__}: "
                f"{str(error)[:200]}"
            ) from error

    def knows(self, phoneme: str) -> bool:
        """Whether it has the phoneme, mark or pause."""
        return phoneme in self._ids

    def prosody(self, phonemes: str, speed: float) -> Prosody:
        """Find the durations and the pitch of a phoneme string; `speed` divides the durations."""
        ids = [_BORDER_ID, *(self._ids[phoneme] for phoneme in phonemes), _BORDER_ID]
        given = {"ids": np.array([ids], np.int64), "speed": np.array([speed], np.float32)}
        durations, features, pitch_hz = self._prosody.run(None, given)
        ends = np.cumsum(durations.astype(np.int64)) * _FRAMES_PER_DURATION
        return Prosody(tuple(ends.tolist()), features[0], pitch_hz[0])

    def decoder(self, prosody: Prosody, start: int, noise: np.random.Generator) -> "Decoder":
        """Begin the audio at a frame; `noise` is the source of the random numbers."""
        return Decoder(self, prosody, start, noise)

    def spectra(self, prosody: Prosody, start: int, end: int) -> Floats:
        """Make the spectra of the frames from `start` to before `end`.

        Returns:
            [end - start, 5 * BINS]: the magnitude and phase of the harmonic part, the magnitude of
            the noise, and the magnitude and phase of the free part. Magnitudes are logarithms.
        """
        first = max(0, start - _REACH_FRAMES)
        window = np.ascontiguousarray(prosody.features[None, :, first : end + _REACH_FRAMES])
        (spectra,) = self._decoder.run(None, {_FEATURES: window})
        return spectra[0, start - first : end - first]


class Decoder:
    """Makes the audio of one phoneme string, in order; arguments as for `Network.decoder`."""

    def __init__(
        self, network: Network, prosody: Prosody, start: int, noise: np.random.Generator
    ) -> None:
        self._network = network
        self._prosody = prosody
        self._at = start
        self._vocoder = Vocoder(prosody.pitch_hz, start, noise)

    def samples(self, end: int, *, is_last: bool) -> Floats:
        """Make the samples of the frames before `end`; the last part has those of all frames."""
        start, self._at = self._at, end
        spectra = self._network.spectra(self._prosody, start, end)
        return self._vocoder.samples(spectra, is_last=is_last)
