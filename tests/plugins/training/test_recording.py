"""One recording on its way to samples: rate, channels, silence and loudness."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import InvalidRequestError
from voiceagent_tts.plugins.training.recording import (
    BadRecordingError,
    RecordingLimits,
    read_recording,
    set_loudness,
)


@pytest.fixture
def sentence(speech: dict[str, np.ndarray]) -> np.ndarray:
    """Return a spoken sentence, [S] float32 at 24 kHz."""
    return next(iter(speech.values()))


@pytest.mark.parametrize("field", ["min_s", "max_s", "loudness_lufs"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_impossible_limit_is_refused(field: str, value: float) -> None:
    """NaN is neither above nor below any limit."""
    with pytest.raises(InvalidRequestError, match=f"--{field.replace('_', '-')}: expected"):
        RecordingLimits(**{field: value})


def test_rate_channels_silence_and_loudness_are_made_equal(
    sentence: np.ndarray, tmp_path: Path
) -> None:
    """A quiet stereo file at 48 kHz with silence becomes mono speech at 24 kHz and -23 LUFS."""
    wide = soxr.resample(sentence * 0.2, SAMPLE_RATE_HZ, 48_000)
    padded = np.pad(wide, 48_000)
    path = tmp_path / "a.flac"
    soundfile.write(path, np.stack((padded, padded), axis=1), 48_000)
    recording = read_recording(path, RecordingLimits())
    assert recording.samples.dtype == np.float32
    assert recording.duration_s < len(sentence) / SAMPLE_RATE_HZ + 0.5
    assert 1.0 < recording.trimmed_s < 2.5
    import pyloudnorm  # loads SciPy; here, so that workers without this test do not load it

    meter = pyloudnorm.Meter(SAMPLE_RATE_HZ)
    assert meter.integrated_loudness(recording.samples) == pytest.approx(-23.0, abs=0.1)


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    """The system's reason, which libsndfile does not pass on."""
    with pytest.raises(BadRecordingError, match="No such file or directory"):
        read_recording(tmp_path / "a.flac", RecordingLimits())


def test_loudness_never_clips(sentence: np.ndarray) -> None:
    """Where the loudness would need samples above full scale, the peak stays below it."""
    loud = set_loudness(sentence, 0.0)
    assert np.abs(loud).max() == pytest.approx(0.98)
    assert np.allclose(loud / 0.98, sentence / np.abs(sentence).max(), atol=1e-6)
