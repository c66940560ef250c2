import numpy as np
import pytest
from hibari import dsp

from voiceagent_tts.hibari.network import Prosody
from voiceagent_tts.hibari.vocoder import Vocoder
from voiceagent_tts.phonemes.reading import LoadedVoice

TEXT = "ˌI kæn mˈuv jʊɹ əpˈYntmənt tə tˈuzdˌA."


class NoNoise:
    """A source of numbers that are all zero: the order of random ones is not part of the claim."""

    def standard_normal(self, shape, dtype):
        return np.zeros(shape, dtype)


@pytest.fixture(scope="module")
def prosody(voice: LoadedVoice) -> Prosody:
    return voice.network.prosody(TEXT, 1.0)


def test_samples_are_those_of_the_package(voice: LoadedVoice, prosody: Prosody) -> None:
    spectra = voice.network.spectra(prosody, 0, prosody.frames)
    parts = np.ascontiguousarray(spectra.reshape(-1, 5, 601).transpose(1, 2, 0))
    expected = dsp.synth(*(part.copy() for part in parts), prosody.pitch_hz, NoNoise())
    samples = Vocoder(prosody.pitch_hz, 0, NoNoise()).samples(spectra, is_last=True)
    assert len(samples) == prosody.frames * 300
    np.testing.assert_allclose(samples, expected, atol=5e-3)


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (20, 60, 160)])
def test_pieces_joined_are_the_whole(voice: LoadedVoice, prosody: Prosody, sizes: tuple) -> None:
    spectra = voice.network.spectra(prosody, 0, prosody.frames)
    whole = Vocoder(prosody.pitch_hz, 0, NoNoise()).samples(spectra, is_last=True)
    vocoder, parts, at = Vocoder(prosody.pitch_hz, 0, NoNoise()), [], 0
    while at < prosody.frames:
        end = min(at + sizes[len(parts) % len(sizes)], prosody.frames)
        parts.append(vocoder.samples(spectra[at:end], is_last=end == prosody.frames))
        at = end
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)


def test_pieces_of_the_network_sound_like_the_whole(voice: LoadedVoice, prosody: Prosody) -> None:
    """Spectra made piece by piece differ by the noise of their 8 bits: 20 dB below the speech."""
    whole = voice.network.spectra(prosody, 0, prosody.frames)
    borders = [*range(0, prosody.frames, 40), prosody.frames]
    pieces = [
        voice.network.spectra(prosody, start, end)
        for start, end in zip(borders, borders[1:], strict=False)
    ]
    expected, samples = (
        Vocoder(prosody.pitch_hz, 0, NoNoise()).samples(spectra, is_last=True)
        for spectra in (whole, np.concatenate(pieces))
    )
    noise = np.square(samples - expected).sum() / np.square(expected).sum()
    assert noise < 0.01
