from pathlib import Path

import numpy as np
import pytest

from testbed.kokoro import kokoro_files
from testbed.missing import skipped_if_missing
from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.kokoro.network import _IDS, HOP_SAMPLES, Graph, Network, Prosody
from voiceagent_tts.phonemes import graph
from voiceagent_tts.phonemes.reading import LoadedVoice

pytestmark = [pytest.mark.kokoro, pytest.mark.xdist_group("kokoro")]

TEXT = "həlˈO ðˈɛɹ, hˌW ɑɹ ju?"


@pytest.fixture(scope="module")
def network(voices: dict[str, LoadedVoice]) -> Network:
    network = voices["af_heart"].network
    assert isinstance(network, Network)
    return network


@pytest.fixture(scope="module")
def prosody(network: Network) -> Prosody:
    return network.prosody(TEXT, 1.0)


def test_both_parts_compute_what_the_whole_graph_computes(
    network: Network, prosody: Prosody
) -> None:
    with skipped_if_missing():
        whole = graph.session(kokoro_files().model.read_bytes())
    ids = [0, *(_IDS[phoneme] for phoneme in TEXT), 0]
    given = {"tokens": np.array([ids]), "style": prosody.style, "speed": np.ones(1, np.float32)}
    (expected,) = whole.run(None, given)
    samples = network.decoder(prosody, 0, np.random.default_rng()).samples(
        prosody.frames, is_last=True
    )
    np.testing.assert_array_equal(samples, expected)
    assert len(samples) == HOP_SAMPLES * prosody.borders[-1] == HOP_SAMPLES * prosody.frames
    assert len(prosody.borders) == len(TEXT) + 2


def test_parts_sound_like_the_whole(network: Network) -> None:
    """Each quarter of a second is about as loud as in the whole, and silence stays silent."""
    prosody = network.prosody(f"{TEXT} {TEXT}", 1.0)
    noise = np.random.default_rng()
    whole = network.decoder(prosody, 0, noise).samples(prosody.frames, is_last=True)
    decoder, at, parts = network.decoder(prosody, 0, noise), 0, []
    while at < prosody.frames:
        at = prosody.cut_near(at + network.part_frames[0])
        parts.append(decoder.samples(at, is_last=at == prosody.frames))
    assert len(parts) > 1
    expected, found = (loudness_db(audio) for audio in (whole, np.concatenate(parts)))
    is_loud = expected > expected.max() - 20
    assert np.abs(expected - found)[is_loud].max() < 6 and np.abs(expected - found).mean() < 3
    assert found[-2:].max() < -40


def loudness_db(audio: np.ndarray) -> np.ndarray:
    spans = np.array_split(audio, len(audio) // 6_000)
    return np.array([10 * np.log10(np.square(span).mean() + 1e-7) for span in spans])


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A damaged one, another graph, and a voice of another size; the sentence says what to do."""
    from voiceagent_tts.hibari.published import published_voices

    other = published_voices()["heart"].file
    damaged = tmp_path / "model.onnx"
    damaged.write_bytes(b"no graph")
    for file in (damaged, other, tmp_path / "missing.onnx"):
        with pytest.raises(CheckpointError, match="models download kokoro"):
            Graph(file)
    voice = tmp_path / "af_heart.bin"
    voice.write_bytes(b"\0" * 4_000)
    with pytest.raises(CheckpointError, match="got 1000"):
        Network(None, voice)  # type: ignore[arg-type]  # it is refused before it is used
