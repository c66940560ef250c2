"""How much a codec changes speech: PESQ and STOI of what it makes of a clip, against the clip.

Source: ITU-T P.862 and P.862.2 (package pesq), Taal et al. 2011 (package pystoi).
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import soxr

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.extras import install_hint
from voiceagent_tts.plugins.bench.quality.clips import Clip, Samples
from voiceagent_tts.plugins.bench.quality.measures import Values

PassThrough = Callable[[Samples], Samples]
"""Encodes and decodes [S] float32 at 24 kHz; the result may be longer by padding."""

_WIDE_HZ, _NARROW_HZ = 16_000, 8_000
_SILENT = 1e-4
_SHORTEST_SAMPLES = SAMPLE_RATE_HZ // 2


def open_codec(folder: Path) -> PassThrough:
    """Load the codec of a Qwen3-TTS-12Hz model, on the CPU.

    Raises:
        CheckpointError: a file is missing or not supported.
        InvalidRequestError: the package torch is missing.
    """
    try:
        import torch

        from voiceagent_tts.model.codec import load_codec
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"the package {error.name!r} is missing. Install it: {install_hint('bench', 'qwen3')}"
        ) from error
    codec = load_codec(folder, has_encoder=True)
    encoder = codec.encoder
    assert encoder is not None

    def through(samples: Samples) -> Samples:
        with torch.inference_mode():
            codes = encoder.encode(torch.tensor(samples))
            return codec.decode(codes).float().numpy()

    return through


def codec_values(clips: Sequence[Clip], through: PassThrough) -> Values:
    """PESQ, wide and narrow, and STOI of each clip of at least half a second."""
    values = Values()
    for clip in clips:
        if len(clip.samples) >= _SHORTEST_SAMPLES:
            for name, value in distances(clip.samples, through(clip.samples)).items():
                values.add(name, value)
    return values


def distances(original: Samples, changed: Samples) -> dict[str, float]:
    """`stoi`, and with the package pesq `pesq_wb` and `pesq_nb`, of changed speech.

    Silence has neither.

    Args:
        original: [S] float32 at 24 kHz.
        changed: the same speech, aligned; cut or padded to its length.
    """
    from pystoi import stoi  # here: it loads SciPy, which other measures do without

    if np.abs(original).max(initial=0.0) < _SILENT:
        return {}
    changed = np.resize(np.pad(changed, (0, len(original))), len(original))
    found = {"stoi": float(stoi(original, changed, SAMPLE_RATE_HZ))}
    try:
        package = importlib.import_module("pesq")
    except ModuleNotFoundError:
        return found
    for name, rate_hz, mode in (("pesq_wb", _WIDE_HZ, "wb"), ("pesq_nb", _NARROW_HZ, "nb")):
        both = (soxr.resample(each, SAMPLE_RATE_HZ, rate_hz) for each in (original, changed))
        try:
            found[name] = float(package.pesq(rate_hz, *both, mode))
        except package.NoUtterancesError:
            continue  # too little speech for P.862
    return found
