"""The network of Kokoro in two parts: phonemes to durations and pitch, and these to samples.

The first part reads a whole text, and takes 7 % of the time. The second one normalises what it
reads by its mean over time, so what it makes of a window differs a little from what it makes of the
whole: windows are no shorter than they must be, and meet where it is quiet.

Source: the ONNX export of Kokoro-82M v1.0 by onnx-community, whose tensors have these names; sizes
and symbols of `config.json` of hexgrad/Kokoro-82M.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.phonemes import graph
from voiceagent_tts.phonemes.network import Floats

HOP_SAMPLES = 600
"""Samples of a frame: 25 ms."""

_IDS = {
    ";": 1, ":": 2, ",": 3, ".": 4, "!": 5, "?": 6, "—": 9, "…": 10, '"': 11, "(": 12, ")": 13,
    "“": 14, "”": 15, " ": 16, "\u0303": 17, "ʣ": 18, "ʥ": 19, "ʦ": 20, "ʨ": 21, "ᵝ": 22, "ꭧ": 23,
    "A": 24, "I": 25, "O": 31, "Q": 33, "S": 35, "T": 36, "W": 39, "Y": 41, "ᵊ": 42, "a": 43,
    "b": 44, "c": 45, "d": 46, "e": 47, "f": 48, "h": 50, "i": 51, "j": 52, "k": 53, "l": 54,
    "m": 55, "n": 56, "o": 57, "p": 58, "q": 59, "r": 60, "s": 61, "t": 62, "u": 63, "v": 64,
    "w": 65, "x": 66, "y": 67, "z": 68, "ɑ": 69, "ɐ": 70, "ɒ": 71, "æ": 72, "β": 75, "ɔ": 76,
    "ɕ": 77, "ç": 78, "ɖ": 80, "ð": 81, "ʤ": 82, "ə": 83, "ɚ": 85, "ɛ": 86, "ɜ": 87, "ɟ": 90,
    "ɡ": 92, "ɥ": 99, "ɨ": 101, "ɪ": 102, "ʝ": 103, "ɯ": 110, "ɰ": 111, "ŋ": 112, "ɳ": 113,
    "ɲ": 114, "ɴ": 115, "ø": 116, "ɸ": 118, "θ": 119, "œ": 120, "ɹ": 123, "ɾ": 125, "ɻ": 126,
    "ʁ": 128, "ɽ": 129, "ʂ": 130, "ʃ": 131, "ʈ": 132, "ʧ": 133, "ʊ": 135, "ʋ": 136, "ʌ": 138,
    "ɣ": 139, "ɤ": 140, "χ": 142, "ʎ": 143, "ʒ": 147, "ʔ": 148, "ˈ": 156, "ˌ": 157, "ː": 158,
    "ʰ": 162, "ʲ": 164, "↓": 169, "→": 171, "↗": 172, "↘": 173, "ᵻ": 177,
}  # fmt: skip
_BORDER_ID = 0  # before the first and after the last phoneme
_MAX_PHONEMES = 510
"""Rows of a voice: one for each number of phonemes."""
_STYLE_WIDTH = 256

_DURATIONS = "/encoder/Clip_output_0"
_FEATURES = "/encoder/MatMul_1_output_0"
"""[1, C, F]: the vector of the phoneme of each frame."""
_PITCH = "/decoder/decoder/Unsqueeze_output_0"
"""[1, 1, 2 F]."""
_ENERGY = "/decoder/decoder/Unsqueeze_1_output_0"
"""[1, 1, 2 F]."""
_SOURCE = "/decoder/decoder/generator/Concat_3_output_0"
"""[1, C, 120 F + 1]: the spectra of the harmonics of the pitch, whose phase runs on."""
_TENSORS = (_FEATURES, _PITCH, _ENERGY, _SOURCE)
_STEPS = (1, 2, 2, 120)
"""Steps of each of these tensors in a frame."""
_MARGINS = (0, 0, 0, 1)

_REACH_FRAMES = 8
"""Frames that the second part reads to each side of those that it makes."""
_LEAST_FRAMES = 56
"""Minimum frames that it reads, if there are so many: of silence alone it makes a loud noise."""
_PART_FRAMES = (40, 80)
_CUT_FRAMES = 8
"""Maximum distance by which a cut is moved to a quiet frame."""
_FADE_SAMPLES = 240
"""Samples at the beginning of a part that are blended with those of the part before."""


@dataclass(frozen=True, slots=True)
class Prosody:
    """How a phoneme string is said.

    Attributes:
        borders: first frame of each phoneme, and the number of frames. [0] is the first frame of
            the first phoneme; frames before it are silence.
        tensors: what the second part reads of all frames, as `_TENSORS`.
        style: [1, `_STYLE_WIDTH`] the voice, for this number of phonemes.
    """

    borders: tuple[int, ...]
    tensors: tuple[Floats, ...]
    style: Floats

    @property
    def frames(self) -> int:
        """Length of the speech, with the silence at both of its ends."""
        return self.tensors[0].shape[-1]

    def cut_near(self, frame: int) -> int:
        """Return the frame with the least energy near `frame`; the end, if hardly any would follow.

        A short rest would be read almost twice, once as the surroundings of the part before it.
        """
        if frame + _PART_FRAMES[0] >= self.frames:
            return self.frames
        energy = self.tensors[2][0, 0, 2 * (frame - _CUT_FRAMES) : 2 * (frame + _CUT_FRAMES) : 2]
        return frame - _CUT_FRAMES + int(energy.argmin())

    def window(self, start: int, end: int) -> tuple[Floats, ...]:
        """What the second part reads of the frames from `start` to before `end`."""
        return tuple(
            np.ascontiguousarray(tensor[:, :, start * steps : end * steps + margin])
            for tensor, steps, margin in zip(self.tensors, _STEPS, _MARGINS, strict=True)
        )


class Graph:
    """The weights, which all voices share. Threads may share it: each runs it on one core.

    Raises:
        CheckpointError: the file is not a Kokoro-82M v1.0, or the provider cannot run it.
    """

    def __init__(self, model: Path, provider: graph.Provider = graph.CPU) -> None:
        try:
            content = model.read_bytes()
            # Exports name them differently: `tokens` or `input_ids`, `audio` or `waveform`.
            inputs, outputs = graph.input_and_output_names(content)
            self._tokens = (set(inputs) - {"style", "speed"}).pop()
            first = ([self._tokens, "style", "speed"], [_DURATIONS, *_TENSORS])
            second = ([*_TENSORS, "style"], outputs)
            self._prosody = graph.session(graph.cut(content, *first), provider)
            self._decoder = graph.session(graph.cut(content, *second), provider)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise CheckpointError(
                f"{model}: expected an ONNX export of Kokoro-82M v1.0, got {type(error).__name__}: "
                f"{str(error)[:200]}; try the one of `voiceagent-tts models download kokoro`"
            ) from error

    def prosody(self, ids: list[int], style: Floats, speed: float) -> Prosody:
        """Find the durations and the pitch of phonemes, given by their ids."""
        given = {
            self._tokens: np.array([[_BORDER_ID, *ids, _BORDER_ID]], np.int64),
            "style": style,
            "speed": np.array([speed], np.float32),
        }
        durations, *tensors = self._prosody.run(None, given)
        return Prosody(tuple(np.cumsum(durations.astype(np.int64)).tolist()), (*tensors,), style)

    def samples(self, prosody: Prosody, start: int, end: int) -> Floats:
        """Make the samples of a window of frames."""
        given = dict(zip(_TENSORS, prosody.window(start, end), strict=True))
        (samples,) = self._decoder.run(None, {**given, "style": prosody.style})
        return samples.reshape(-1)


class Network:
    """One voice, from its file; raises `CheckpointError` if the file has another size."""

    hop_samples = HOP_SAMPLES
    part_frames = _PART_FRAMES

    def __init__(self, weights: Graph, styles: Path) -> None:
        content = np.fromfile(styles, np.float32)
        if content.size != _MAX_PHONEMES * _STYLE_WIDTH:
            raise CheckpointError(
                f"{styles}: expected a voice of Kokoro-82M with {_MAX_PHONEMES * _STYLE_WIDTH} "
                f"numbers, got {content.size}"
            )
        self._weights = weights
        self._styles = content.reshape(_MAX_PHONEMES, 1, _STYLE_WIDTH)

    def knows(self, phoneme: str) -> bool:
        """Whether it has the phoneme, mark or pause."""
        return phoneme in _IDS

    def prosody(self, phonemes: str, speed: float) -> Prosody:
        """Find the durations and the pitch of a phoneme string; `speed` divides the durations."""
        ids = [_IDS[phoneme] for phoneme in phonemes]
        return self._weights.prosody(ids, self._styles[len(ids) - 1], speed)

    def decoder(self, prosody: Prosody, start: int, noise: np.random.Generator) -> "Decoder":
        """Begin the audio at a frame; this network needs no `noise`."""
        return Decoder(self._weights, prosody, start)


class Decoder:
    """Makes the audio of one phoneme string, in order; arguments as for `Network.decoder`."""

    def __init__(self, weights: Graph, prosody: Prosody, start: int) -> None:
        self._weights = weights
        self._prosody = prosody
        self._at = start
        self._following: Floats = np.zeros(0, np.float32)
        """The first samples after the last part, as it would have continued."""

    def samples(self, end: int, *, is_last: bool) -> Floats:
        """Make the samples of the frames before `end`."""
        start, self._at = self._at, end
        last = min(self._prosody.frames, end + _REACH_FRAMES)
        first = max(0, min(start - _REACH_FRAMES, last - _LEAST_FRAMES))
        window = self._weights.samples(self._prosody, first, last)
        made = window[(start - first) * HOP_SAMPLES : (end - first) * HOP_SAMPLES]
        fade = min(len(self._following), len(made))
        rising = np.linspace(0, 1, fade, dtype=np.float32)
        made[:fade] = made[:fade] * rising + self._following[:fade] * (1 - rising)
        self._following = window[(end - first) * HOP_SAMPLES :][:_FADE_SAMPLES]
        return made
