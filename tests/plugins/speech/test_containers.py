import io
import wave

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.speech.containers import (
    ContainerEncoder,
    ContainerFormat,
)

LOSSY = ["mp3", "opus", "aac"]
RATES_HZ = [8_000, 16_000, 24_000, 48_000]
FFMPEG_FORMAT = {"mp3": "mp3", "opus": "ogg", "aac": "aac", "flac": "flac", "wav": "wav"}


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """1.3 s of a gliding tone with a little noise, loud to its end: [S] int16, 24 kHz."""
    rng = np.random.default_rng(7)
    time_s = np.arange(31_335) / SAMPLE_RATE_HZ
    pitch_hz = 120 + 40 * np.sin(2 * np.pi * 1.7 * time_s) + 30 * time_s
    phase = 2 * np.pi * np.cumsum(pitch_hz) / SAMPLE_RATE_HZ
    voice = sum(np.sin(k * phase) / k for k in range(1, 16))
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4.3 * time_s)
    samples = 6_000 * syllables * voice + 60 * rng.standard_normal(len(time_s))
    return np.clip(samples, -30_000, 30_000).astype(np.int16)


def encode_file(
    container_format: ContainerFormat, samples: np.ndarray, sample_rate_hz: int, chunk: int = 1_920
) -> bytes:
    encoder = ContainerEncoder(container_format, sample_rate_hz)
    pushed = [
        encoder.push(samples[start : start + chunk].tobytes())
        for start in range(0, len(samples), chunk)
    ]
    return b"".join((*pushed, encoder.finish()))


def decode_file(container_format: ContainerFormat, data: bytes) -> tuple[np.ndarray, int]:
    """Return [S] int16 and its rate, read from front to back as FFmpeg reads a pipe."""
    to_pcm16 = av.AudioResampler("s16", "mono")
    with av.open(io.BytesIO(data), format=FFMPEG_FORMAT[container_format]) as container:
        frames = [pcm for f in container.decode(audio=0) for pcm in to_pcm16.resample(f)]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]), frames[0].sample_rate


def at_rate(samples: np.ndarray, sample_rate_hz: int) -> np.ndarray:
    stream = OutputStream("pcm_s16le", sample_rate_hz)
    return np.frombuffer(stream.push(samples.tobytes()) + stream.finish(), "<i2")


@pytest.mark.parametrize("sample_rate_hz", RATES_HZ)
@pytest.mark.parametrize("container_format", ["flac", "wav"])
def test_lossless_files_contain_every_sample(
    container_format, sample_rate_hz: int, speech: np.ndarray
) -> None:
    decoded, rate_hz = decode_file(
        container_format, encode_file(container_format, speech, sample_rate_hz)
    )
    assert rate_hz == sample_rate_hz
    np.testing.assert_array_equal(decoded, at_rate(speech, sample_rate_hz))


@pytest.mark.parametrize("sample_rate_hz", RATES_HZ)
@pytest.mark.parametrize("container_format", LOSSY)
def test_lossy_files_contain_the_tail(
    container_format, sample_rate_hz: int, speech: np.ndarray
) -> None:
    """A lossy file is at least as long as its audio and contains its last 100 ms."""
    data = encode_file(container_format, speech, sample_rate_hz)
    decoded, rate_hz = decode_file(container_format, data)
    original = at_rate(speech, rate_hz)
    # mp3 and aac prepend their delay and pad their last frame; Ogg Opus declares both.
    added = len(decoded) - len(original)
    most_added = 0 if container_format == "opus" else 1_105 + 2 * 1_152
    assert 0 <= added <= most_added

    tail = original[-rate_hz // 10 :].astype(float)
    lags = np.correlate(decoded[-len(tail) - added :].astype(float), tail, "valid")
    lag = int(np.argmax(lags))
    heard = decoded[len(original) - len(tail) + lag :][: len(tail)].astype(float)
    similarity = heard @ tail / np.linalg.norm(heard) / np.linalg.norm(tail)
    assert similarity > 0.95
    assert 0.8 < np.linalg.norm(heard) / np.linalg.norm(tail) < 1.25


@pytest.mark.parametrize("container_format", [*LOSSY, "flac", "wav"])
@given(lengths=st.lists(st.integers(0, 3_000), min_size=1, max_size=6))
@settings(max_examples=examples(15), deadline=None)
def test_chunks_do_not_matter(container_format, lengths: list[int]) -> None:
    samples = np.random.default_rng(3).integers(-9_000, 9_000, 2_400 + sum(lengths))
    samples = samples.astype("<i2")
    encoder = ContainerEncoder(container_format)
    pieces = [encoder.push(piece.tobytes()) for piece in np.split(samples, np.cumsum(lengths))]
    streamed = b"".join((*pieces, encoder.finish()))

    whole = encode_file(container_format, samples, SAMPLE_RATE_HZ, chunk=len(samples))
    np.testing.assert_array_equal(
        decode_file(container_format, streamed)[0], decode_file(container_format, whole)[0]
    )


@pytest.mark.parametrize(
    ("container_format", "most_ms"),
    [("pcm", 5), ("wav", 5), ("flac", 30), ("opus", 40), ("mp3", 50), ("aac", 90)],
)
def test_first_audio_is_emitted_early(container_format, most_ms: int, speech: np.ndarray) -> None:
    """Audio is emitted as soon as the codec has it, long before the file is complete."""
    encoder = ContainerEncoder(container_format)
    headers = encoder.push(b"")
    chunk = 120  # 5 ms
    pushed_ms = next(
        (start + chunk) * 1_000 / SAMPLE_RATE_HZ
        for start in range(0, len(speech), chunk)
        if encoder.push(speech[start : start + chunk].tobytes())
    )
    assert pushed_ms <= most_ms
    assert len(headers) < 200


def test_streamed_wav_declares_no_length(speech: np.ndarray) -> None:
    """Both lengths are 0xFFFFFFFF, and soundfile and the standard library read to the end."""
    data = encode_file("wav", speech, SAMPLE_RATE_HZ)
    assert data[4:8] == data[40:44] == b"\xff" * 4
    read, rate_hz = soundfile.read(io.BytesIO(data), dtype="int16")
    assert rate_hz == SAMPLE_RATE_HZ
    np.testing.assert_array_equal(read, speech)
    with wave.open(io.BytesIO(data)) as reader:
        assert reader.readframes(1 << 30) == speech.tobytes()
