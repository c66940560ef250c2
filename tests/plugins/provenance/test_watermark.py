"""The marker: the same samples in any chunking, as many as before, silence untouched."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.examples import examples
from testbed.watermarks import TEST_KEY, speech_pcm
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.plugins.provenance.watermark import Marker, mark


def pieces_of(pcm: bytes, sizes: list[int]) -> list[bytes]:
    """Cut PCM into pieces of these sizes in samples, again and again."""
    pieces, start, number = [], 0, 0
    while start < len(pcm):
        end = start + 2 * sizes[number % len(sizes)]
        pieces.append(pcm[start:end])
        start, number = end, number + 1
    return pieces


@settings(max_examples=examples(100))
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30).filter(any),
    start=st.integers(0, 150_000),
)
def test_any_chunking_gives_the_same_samples(sizes: list[int], start: int) -> None:
    """However audio is cut into chunks, empty ones and single samples included, it is equal."""
    pcm = speech_pcm()[2 * start : 2 * (start + 8_000)]
    marker = Marker(TEST_KEY)
    marked = [marker.push(piece) for piece in pieces_of(pcm, sizes)]
    assert b"".join(marked) == mark(pcm, TEST_KEY)
    assert [len(piece) for piece in marked] == [len(piece) for piece in pieces_of(pcm, sizes)]


def test_no_sample_waits_for_a_later_one() -> None:
    """Changed later samples change no earlier sample: there is no look-ahead."""
    pcm = speech_pcm()[:96_000]
    for sample in (1, 383, 384, 20_001):
        other = pcm[: 2 * sample] + bytes(len(pcm) - 2 * sample)
        marked = mark(pcm, TEST_KEY)
        assert mark(other, TEST_KEY)[: 2 * sample] == marked[: 2 * sample]
        assert mark(other, TEST_KEY) != marked


def test_silence_stays_silence() -> None:
    """Digital silence is unchanged, also 11 ms after speech, in which the last sounds fade."""
    assert mark(bytes(96_000), TEST_KEY) == bytes(96_000)
    silence_s = 0.5
    marked = mark(speech_pcm() + bytes(round(2 * silence_s * SAMPLE_RATE_HZ)), TEST_KEY)
    after_speech = len(speech_pcm()) + 2 * 256
    assert not any(marked[after_speech:])


def test_the_loudest_samples_are_limited_and_not_wrapped() -> None:
    """A square wave at full scale keeps its signs."""
    square = np.where(np.arange(48_000) // 40 % 2, 32_767, -32_768).astype("<i2")
    marked = np.frombuffer(mark(square.tobytes(), TEST_KEY), "<i2")
    assert len(marked) == len(square)
    steady = np.arange(48_000) % 40 > 10
    assert (np.sign(marked[steady]) == np.sign(square[steady])).all()
    assert np.abs(marked.astype(int)).max() >= 32_767


def test_a_mark_is_small() -> None:
    """Gains of 1.5 dB up and down leave the rest 15 dB below the speech."""
    plain = np.frombuffer(speech_pcm(), "<i2").astype(float)
    rest = np.frombuffer(mark(speech_pcm(), TEST_KEY), "<i2") - plain
    assert 14 < 10 * np.log10(np.mean(plain**2) / np.mean(rest**2)) < 20
