"""Audio files: which are read, and which are refused with a reason."""

import io
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.plugins.recordings.file_reader import REFERENCE_LIMITS, read_audio
from voiceagent_tts.plugins.speech.containers import ContainerEncoder


def tone(seconds: float, rate_hz: int = SAMPLE_RATE_HZ) -> np.ndarray:
    """A 440 Hz tone at a third of full scale: [S] float32."""
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    return (np.sin(2 * np.pi * 440 * time_s) / 3).astype(np.float32)


def audio_file(
    samples: np.ndarray,
    rate_hz: int = SAMPLE_RATE_HZ,
    kind: str = "WAV",
    subtype: str | None = None,
) -> bytes:
    """Samples [S] or [S, channels] as a file, written a second at a time."""
    data = io.BytesIO()
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with soundfile.SoundFile(data, "w", rate_hz, channels, subtype, format=kind) as file:
        for start in range(0, len(samples), rate_hz):
            file.write(samples[start : start + rate_hz])
    return data.getvalue()


def refusal(data: bytes) -> InvalidRequestError:
    """The error with which the file is refused."""
    with pytest.raises(InvalidRequestError) as caught:
        read_audio(data)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        ("WAV", None),
        ("WAV", "FLOAT"),
        ("FLAC", None),
        ("MP3", None),
        ("OGG", None),
        ("OGG", "OPUS"),
    ],
)
def test_files_become_samples(kind: str, subtype: str | None) -> None:
    """Each format decodes to the encoded tone, at its position."""
    read = read_audio(audio_file(tone(1.0), kind=kind, subtype=subtype))
    assert read.dtype == np.float32
    assert abs(len(read) - SAMPLE_RATE_HZ) <= 100
    middle = slice(6_000, 18_000)
    assert np.abs(read[middle] - tone(1.0)[middle]).max() < 0.06


@pytest.mark.parametrize("rate_hz", [8_000, 44_100])
def test_other_rates_are_converted(rate_hz: int) -> None:
    """A file at another rate decodes to its tone at 24 kHz."""
    read = read_audio(audio_file(tone(1.0, rate_hz), rate_hz, subtype="FLOAT"))
    assert len(read) == SAMPLE_RATE_HZ
    middle = slice(2_000, 22_000)
    assert np.abs(read[middle] - tone(1.0)[middle]).max() < 1e-3


def test_channels_are_mixed() -> None:
    """A stereo file decodes to the mean of its channels."""
    stereo = np.stack((tone(1.0), np.zeros(SAMPLE_RATE_HZ, np.float32)), axis=1)
    read = read_audio(audio_file(stereo, subtype="FLOAT"))
    assert np.abs(read - tone(1.0) / 2).max() < 1e-6


@pytest.mark.parametrize("container", ["wav", "flac"])
def test_a_file_of_unknown_length_is_read(container: str) -> None:
    """A streamed file whose header has no length is read to its end."""
    encoder = ContainerEncoder(container)  # type: ignore[arg-type]
    data = encoder.push((tone(1.0) * 32_767).astype("<i2").tobytes()) + encoder.finish()
    assert len(read_audio(data)) == SAMPLE_RATE_HZ


def test_too_short_and_too_long_are_refused() -> None:
    """The message has the length."""
    error = refusal(audio_file(tone(0.1)))
    assert "at least 0.5 s; got 0.10 s" in error.message
    assert error.code == ErrorCode.INVALID_PARAM
    assert "at most 60 s; got 600 s" in refusal(audio_file(tone(600.0))).message


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_a_bomb_is_refused_by_its_header(kind: str) -> None:
    """A small file with minutes of audio is refused by its declared length."""
    bomb = audio_file(np.zeros(300 * 8_000, np.int16), 8_000, kind)
    assert len(bomb) < 400_000
    assert "at most 60 s; got 300 s" in refusal(bomb).message


def test_a_bomb_without_a_length_is_refused() -> None:
    """A file without a declared length is refused as soon as it is too long."""
    encoder = ContainerEncoder("flac")
    second = bytes(2 * SAMPLE_RATE_HZ)
    bomb = b"".join(encoder.push(second) for _ in range(600)) + encoder.finish()
    assert len(bomb) < 400_000
    assert "the file is longer than its header states" in refusal(bomb).message


def test_memory_is_limited() -> None:
    """A file that needs more memory than the limit is refused and harms no other process."""
    limits = replace(REFERENCE_LIMITS, memory_bytes=2**20)
    eight_channels = np.stack([tone(5.0)] * 8, axis=1)
    with pytest.raises(InvalidRequestError, match="more memory or time"):
        read_audio(audio_file(eight_channels), limits)


def test_time_is_limited() -> None:
    """A file that needs more CPU time than the limit is refused."""
    with pytest.raises(InvalidRequestError, match="more memory or time"):
        read_audio(audio_file(tone(59.0, 192_000), 192_000), replace(REFERENCE_LIMITS, cpu_s=0))


def test_silence_is_refused() -> None:
    """A file without sound is refused, unless silence is allowed."""
    silence = audio_file(np.zeros(SAMPLE_RATE_HZ, np.int16))
    assert "expected a voice, got silence" in refusal(silence).message
    assert not read_audio(silence, replace(REFERENCE_LIMITS, may_be_silent=True)).any()


def test_samples_far_beyond_full_scale_are_refused() -> None:
    """The voice of such a recording would not be finite; floats in the range of int16 are read."""
    huge = audio_file(tone(1.0) * 1e30, subtype="FLOAT")
    assert "expected samples from -1 to 1" in refusal(huge).message
    assert len(read_audio(audio_file(tone(1.0) * 32_768, subtype="FLOAT"))) == SAMPLE_RATE_HZ


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_samples_that_are_not_finite_are_refused(number: float) -> None:
    """A single sample that is not finite is enough."""
    samples = tone(1.0)
    samples[5_000] = number
    assert "expected finite samples" in refusal(audio_file(samples, subtype="FLOAT")).message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xf1\x50\x80" + bytes(100),
        b"RIFF\0\0\0\0AVI ",
    ],
    ids=["nothing", "AAC", "video"],
)
def test_other_files_are_refused(data: bytes) -> None:
    """A file of another format is refused; the message lists the supported formats."""
    assert "expected a WAV, FLAC, MP3 or Ogg file" in refusal(data).message


@pytest.mark.parametrize(
    "start", [b"RIFF\0\0\0\0WAVE", b"fLaC", b"OggS", b"ID3", b"\xff\xfb\x90\x64"]
)
def test_damaged_files_are_refused(start: bytes) -> None:
    """A file that begins as audio and continues as noise is refused."""
    noise = np.random.default_rng(3).bytes(20_000)
    assert "is damaged" in refusal(start + noise).message


def test_a_large_file_is_refused() -> None:
    """A file over the size limit is refused without decoding."""
    with pytest.raises(InvalidRequestError) as caught:
        read_audio(audio_file(tone(1.0)), replace(REFERENCE_LIMITS, max_bytes=1_000))
    assert caught.value.code == ErrorCode.MESSAGE_TOO_BIG


@pytest.mark.parametrize(("rate_hz", "channels"), [(4_000, 1), (24_000, 9)])
def test_strange_layouts_are_refused(rate_hz: int, channels: int) -> None:
    """Rates below 8 kHz and more than eight channels are refused; the message has the limits."""
    samples = np.stack([tone(1.0, rate_hz)] * channels, axis=1)
    assert "; got " in refusal(audio_file(samples, rate_hz)).message
