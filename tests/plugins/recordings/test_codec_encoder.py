"""The codec's encoder turns reference audio into the official package's codes."""

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from testbed.parity_reference import REFERENCE
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.plugins.recordings import codec_encoder
from voiceagent_tts.plugins.recordings.codec_encoder import CodecEncoder, load_codec_encoder


@pytest.fixture(scope="module")
def encoder() -> CodecEncoder:
    """The encoder of the tiny Base checkpoint."""
    return load_codec_encoder(REFERENCE / "base-0b6")


@pytest.fixture(scope="module")
def reference() -> Tensor:
    """[S] float32: reference.wav, whose eighteenth frame is partly filled."""
    samples, _ = soundfile.read(REFERENCE / "reference.wav", dtype="float32")
    return torch.from_numpy(samples)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    """[18, 16]: the official package's codes for that audio."""
    with np.load(REFERENCE / "reference-prompt.npz") as arrays:
        return torch.from_numpy(arrays["ref_code"])


@pytest.mark.parametrize("portion_frames", [1, 7])
def test_portions_change_no_code(
    encoder: CodecEncoder,
    reference: Tensor,
    codes: Tensor,
    portion_frames: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Audio encoded in several portions gets the codes of one call over all of it."""
    monkeypatch.setattr(codec_encoder, "_PORTION_FRAMES", portion_frames)
    reported: list[tuple[int, int]] = []
    encoded = encoder.encode(reference, lambda done, total: reported.append((done, total)))
    assert torch.equal(encoded, codes)
    assert [total for _, total in reported] == [len(reference)] * -(-18 // portion_frames)
    assert sorted(reported) == reported
    assert reported[-1] == (len(reference), len(reference))


@pytest.mark.parametrize("samples", [FRAME_SAMPLES, FRAME_SAMPLES + 1])
def test_a_part_of_a_frame_is_a_frame(
    encoder: CodecEncoder, reference: Tensor, samples: int
) -> None:
    """A partly filled last frame counts as a frame."""
    frames = encoder.encode(reference[:samples])
    assert frames.shape == (-(-samples // FRAME_SAMPLES), 16)
