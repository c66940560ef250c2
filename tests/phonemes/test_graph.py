import numpy as np
import onnxruntime
import pytest

from voiceagent_tts.hibari.network import Prosody
from voiceagent_tts.hibari.published import published_voices
from voiceagent_tts.phonemes.graph import cut
from voiceagent_tts.phonemes.reading import LoadedVoice

TEXT = "həlˈO ðˈɛɹ."


def test_both_parts_compute_what_the_whole_graph_computes(voice: LoadedVoice) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    file = published_voices()["heart"].file
    whole = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    ids = [0, *(voice.network._ids[phoneme] for phoneme in TEXT), 0]
    expected = whole.run(None, {"ids": np.array([ids], np.int64), "speed": np.ones(1, np.float32)})
    prosody: Prosody = voice.network.prosody(TEXT, 1.0)
    spectra = voice.network.spectra(prosody, 0, prosody.frames)
    np.testing.assert_allclose(prosody.pitch_hz, expected[5][0], atol=1e-3)
    # Products of 8 bits are added in another order: the spectra differ by their noise.
    assert np.abs(spectra.T.reshape(5, 601, -1) - np.stack(expected[:5])[:, 0]).max() < 0.5


def test_a_graph_without_the_tensor_is_refused() -> None:
    content = published_voices()["heart"].file.read_bytes()
    with pytest.raises(ValueError, match="/nothing"):
        cut(content, ["ids"], ["/nothing"])
    for damaged in (b"", b"no graph at all", content[: len(content) // 2]):
        with pytest.raises(ValueError):
            cut(damaged, ["ids"], ["f0"])
