"""The codec's decoder gives the official samples, however frames are divided into calls."""

import random
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.parity import decode_in_windows, prime, random_windows
from testbed.parity_reference import REFERENCE
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model import codec_layers
from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.codec_decoder import CodecDecoder

TOLERANCE = 1e-4
"""Random weights amplify rounding; the official package differs from itself by half of this."""


@pytest.fixture(scope="module", params=[1, 10_000], ids=["products", "convolutions"])
def decoder(request: pytest.FixtureRequest) -> CodecDecoder:
    """The decoder that the reference was made with; its attention window is 8 frames."""
    with patch.object(codec_layers, "_WIDE_CHANNELS", request.param):
        return load_codec(REFERENCE / "base-0b6").decoder


@pytest.fixture(scope="module")
def codes() -> Tensor:
    with np.load(REFERENCE / "codec-130-frames.npz") as arrays:
        return torch.from_numpy(arrays["codes"]).long().T[None]


@pytest.fixture(scope="module")
def samples() -> Tensor:
    """[130 * 1920]: the samples that the official package decoded from `codes` in one call."""
    with np.load(REFERENCE / "codec-130-frames.npz") as arrays:
        return torch.from_numpy(arrays["wav"])


def decode_in(decoder: CodecDecoder, codes: Tensor, portions: list[int]) -> Tensor:
    """Decode one row ([1, K, F]) in calls of the given numbers of frames."""
    return decode_in_windows(decoder, codes[0].T, portions)


@pytest.mark.parametrize("seed", range(2))
def test_any_partition_is_the_official_decode(
    decoder: CodecDecoder, codes: Tensor, samples: Tensor, seed: int
) -> None:
    portions = random_windows(130, random.Random(seed))
    assert (decode_in(decoder, codes, portions) - samples).abs().max() < TOLERANCE


@pytest.mark.parametrize("reference_frames", [1, 10, 14, 27, 77])
def test_primed_speech_continues_its_reference(
    decoder: CodecDecoder, codes: Tensor, samples: Tensor, reference_frames: int
) -> None:
    state = decoder.new_state(1, 13)
    prime(decoder, codes[..., :reference_frames], state)
    end = reference_frames + 13
    spoken = decoder.decode(codes[..., reference_frames:end], state)[0]
    expected = samples[reference_frames * FRAME_SAMPLES : end * FRAME_SAMPLES]
    assert (spoken - expected).abs().max() < TOLERANCE


def test_half_precision_is_close(codes: Tensor, samples: Tensor) -> None:
    """bfloat16 samples are finite and differ from float32 by noise 20 dB below the signal."""
    decoder = load_codec(REFERENCE / "base-0b6", torch.bfloat16).decoder
    decoded = decode_in(decoder, codes[..., :40], [8] * 5)
    expected = samples[: 40 * FRAME_SAMPLES]
    assert decoded.dtype == torch.float32
    noise = (decoded - expected).pow(2).mean() / expected.pow(2).mean()
    assert 10 * noise.log10() < -20


def test_activations_stay_finite_in_half_precision() -> None:
    with building(torch.bfloat16, torch.device("cpu")):
        activation = codec_layers.SnakeBeta(4)
    logarithms = {"a.alpha": 9.0, "a.beta": -12.0}
    for name, tensor in activation.weights("a"):
        tensor.fill_(logarithms[name])
    x = torch.linspace(-3, 3, 40, dtype=torch.bfloat16).view(1, 10, 4)
    wave = torch.sin(x.double() * np.exp(9.0)) ** 2 / (np.exp(-12.0) + 1e-9)
    made = activation(x)
    assert made.dtype == torch.bfloat16
    assert ((made.double() - x - wave) / wave.clamp(min=1.0)).abs().max() < 0.01
