"""The codec's decoder gives the official samples, however frames are divided into calls."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.parity import decode_in_windows, prime, random_windows
from testbed.parity_reference import REFERENCE
from testbed.plain_codec import PlainCodec
from testbed.random_weights import PUBLISHED_CODEC, untrained_decoder
from voiceagent_tts.core import FRAME_SAMPLES
from voiceagent_tts.model import codec_layers
from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import CodecDecoderConfig

TOLERANCE = 1e-4
"""Random weights amplify rounding; the official package differs from itself by half of this."""

SMALL = CodecDecoderConfig(
    codebook_size=32, codebook_dim=12, hidden_size=16, latent_dim=20, intermediate_size=24,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
    sliding_window=5, num_quantizers=4, upsample_rates=(8, 5, 4, 3), upsampling_ratios=(2, 2),
    decoder_dim=32,
)  # fmt: skip


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    """The decoder that the reference was made with; its attention window is 8 frames."""
    return load_codec(REFERENCE / "base-0b6").decoder


@pytest.fixture(scope="module")
def codes() -> Tensor:
    """[1, K, 130] int64."""
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


def small_decoder(config: CodecDecoderConfig, seed: int = 0) -> tuple[CodecDecoder, PlainCodec]:
    """A decoder with random weights, and its plain twin."""
    decoder = CodecDecoder(config)
    return decoder, PlainCodec(config, fill_at_random(decoder, seed))


def fill_at_random(decoder: CodecDecoder, seed: int) -> dict[str, Tensor]:
    """Give every tensor of the decoder random values; return them under the checkpoint's names.

    The values are small, so that no sample is clipped and rounding is not amplified.
    """
    generator = torch.Generator().manual_seed(seed)
    filled = {}
    for name, tensor in decoder.weights():
        if name.endswith("cluster_usage"):
            values = torch.rand(tensor.shape, generator=generator) + 0.5
        else:
            inputs = math.prod(tensor.shape[1:]) if tensor.ndim > 1 else 25
            values = torch.randn(tensor.shape, generator=generator) * 0.5 / math.sqrt(inputs)
            if name.endswith("norm.weight"):
                values += 1.0
        tensor.copy_(values)
        filled[name] = values
    return filled


def random_codes(config: CodecDecoderConfig, rows: int, frames: int, seed: int = 0) -> Tensor:
    """[B, K, F] int64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, config.num_quantizers, frames)
    return torch.randint(config.codebook_size, shape, generator=generator)


@pytest.mark.parametrize("seed", range(4))
def test_any_partition_is_the_official_decode(
    decoder: CodecDecoder, codes: Tensor, samples: Tensor, seed: int
) -> None:
    """Calls of random lengths, joined, give the official package's samples."""
    portions = random_windows(130, random.Random(seed))
    assert (decode_in(decoder, codes, portions) - samples).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        replace(SMALL, upsampling_ratios=(4,), upsample_rates=(3, 8, 5, 4), decoder_dim=48),
        replace(SMALL, sliding_window=1, num_key_value_heads=4),
        replace(SMALL, sliding_window=40, upsampling_ratios=(2, 2, 2), upsample_rates=(8, 5, 6)),
    ],
    ids=["small", "other rates", "no window", "wide window"],
)
@pytest.mark.parametrize("wide_channels", [1, 10_000], ids=["products", "convolutions"])
def test_streamed_is_whole(
    config: CodecDecoderConfig, wide_channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any layout, with either kind of convolution, streamed decoding equals whole decoding."""
    monkeypatch.setattr(codec_layers, "_WIDE_CHANNELS", wide_channels)
    decoder, whole = small_decoder(config)
    codes = random_codes(config, 1, 50)
    streamed = decode_in(decoder, codes, random_windows(50, random.Random(1)))
    expected = whole.decode(codes)[0]
    assert expected.std() > 0.01
    assert (streamed - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("reference_frames", [1, 9, 10, 11, 25, 26, 77])
def test_primed_speech_continues_its_reference(
    decoder: CodecDecoder, codes: Tensor, samples: Tensor, reference_frames: int
) -> None:
    """After priming with a reference, speech equals the end of a decode of both together."""
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


@pytest.mark.thorough
def test_half_precision_at_published_sizes_is_close() -> None:
    """With random weights of the published sizes, bfloat16's noise is 30 dB below the signal."""
    exact = untrained_decoder(PUBLISHED_CODEC, torch.device("cpu"))
    with building(torch.bfloat16, torch.device("cpu")):
        half = CodecDecoder(PUBLISHED_CODEC)
    half.load_state_dict(exact.state_dict())
    codes = random_codes(PUBLISHED_CODEC, 1, 6)
    expected, decoded = (decode_in(decoder, codes, [3, 3]) for decoder in (exact, half))
    noise = (decoded - expected).pow(2).mean() / expected.pow(2).mean()
    assert 10 * noise.log10() < -30


def test_activations_stay_finite_in_half_precision() -> None:
    """Exponentials beyond the range of half precision stay finite: they are computed in float32."""
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
