import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from voiceagent_tts.audio.output import OutputStream
from voiceagent_tts.core import ENCODED_SAMPLE_BYTES

RATES_HZ = [8_000, 16_000, 24_000, 48_000]


def convert(stream: OutputStream, chunks: list[bytes]) -> bytes:
    return b"".join([*map(stream.push, chunks), stream.finish()])


def test_the_native_format_passes_through() -> None:
    stream, pcm = OutputStream("pcm_s16le", 24_000), bytes(480)
    assert stream.push(pcm) is pcm
    assert stream.finish() == b""


@pytest.mark.parametrize("sample_rate_hz", RATES_HZ)
@given(lengths=st.lists(st.integers(0, 2_000), max_size=6), data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_chunks_do_not_matter(sample_rate_hz: int, lengths: list[int], data) -> None:
    encoding = data.draw(st.sampled_from(sorted(ENCODED_SAMPLE_BYTES)))
    total = sum(lengths)
    samples = np.random.default_rng(total).integers(-9_000, 9_000, total).astype("<i2")
    pieces = [piece.tobytes() for piece in np.split(samples, np.cumsum(lengths))]

    stream = OutputStream(encoding, sample_rate_hz)
    streamed = convert(stream, pieces)

    sample_bytes = ENCODED_SAMPLE_BYTES[encoding]
    assert len(streamed) == round(total * sample_rate_hz / 24_000) * sample_bytes
    assert streamed == convert(OutputStream(encoding, sample_rate_hz), [samples.tobytes()])


@pytest.mark.parametrize("sample_rate_hz", RATES_HZ)
def test_first_audio_comes_with_the_first_chunk(sample_rate_hz: int) -> None:
    """At least 5 ms of a first chunk of 10 ms are returned at once, at every rate."""
    first = OutputStream("pcm_s16le", sample_rate_hz).push(bytes(2 * 240))
    assert len(first) / 2 / sample_rate_hz >= 0.005
