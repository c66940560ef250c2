"""Fused activations of the codec give the plain decoder's samples, however frames are divided.

Kernels run in Triton's interpreter, and are compiled for a GPU that this machine lacks.
"""

import math
import random
from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from testbed.parity import prime
from testbed.random_weights import PUBLISHED_CODEC, untrained_decoder
from testbed.triton_here import Resources, Run
from voiceagent_tts.model import codec_layers, kernels
from voiceagent_tts.model.checkpoint import building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.codec_layers import SnakeBeta
from voiceagent_tts.model.config import CodecDecoderConfig
from voiceagent_tts.model.kernels import codec_difference, fuse_codec

CPU = torch.device("cpu")
TOLERANCE = 1e-5
SMALL = CodecDecoderConfig(
    codebook_size=32, codebook_dim=12, hidden_size=16, latent_dim=20, intermediate_size=24,
    num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
    sliding_window=5, num_quantizers=4, upsample_rates=(8, 5, 4, 3), upsampling_ratios=(2, 2),
    decoder_dim=48,
)  # fmt: skip

pytestmark = pytest.mark.xdist_group("fused")


def make_decoder(*, is_fused: bool) -> CodecDecoder:
    with patch.object(codec_layers, "_WIDE_CHANNELS", 24):  # both kinds of convolutions
        decoder = untrained_decoder(SMALL, CPU)
    generator = torch.Generator().manual_seed(3)
    for name, tensor in decoder.named_parameters():
        if not name.endswith("norm.weight"):
            width = tensor[0].numel() if tensor.ndim > 1 else 16
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / 2 / width**0.5)
    for name, tensor in decoder.named_buffers():
        if name.endswith(("alpha", "inverse_beta", "table")):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    if is_fused:
        decoder.fuse()
    return decoder


def decoded(kernels: str) -> list[Tensor]:
    """Samples of every call, and the final state: rows in any order, in portions of any size."""
    choices = random.Random(0)
    decoder = make_decoder(is_fused=kernels == "fused")
    state = decoder.new_state(4, 3)
    generator = torch.Generator().manual_seed(0)
    results = list[Tensor]()
    with torch.inference_mode():
        primed = decoder.new_state(1, 3)
        prime(decoder, torch.randint(32, (1, 4, 4), generator=generator), primed)
        state.copy_row(2, primed)
        for _ in range(4):
            numbers = choices.sample(range(4), choices.randint(1, 3))
            # A column of a table, as the engine's codes have it: its numbers are not adjacent.
            rows = torch.tensor([[number, 99] for number in numbers])[:, 0]
            codes = torch.randint(32, (len(rows), 4, choices.randint(1, 2)), generator=generator)
            results.append(decoder.decode(codes, state, rows))
    return [*results, state.history]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_fused_activations_give_the_plain_samples(run_interpreted: Run) -> None:
    """Samples and the state of every row equal the plain decoder's, up to rounding."""
    fused, plain = run_interpreted(decoded, "fused"), decoded("plain")
    for found, expected in zip(fused, plain, strict=True):
        assert found.shape == expected.shape
        assert (found - expected).abs().max() <= TOLERANCE * max(1.0, expected.abs().max())
    assert plain[0].abs().max() > 0.01


def trial_decoder() -> CodecDecoder:
    """A decoder with random weights, both kinds of convolutions and little work."""
    config = CodecDecoderConfig(
        codebook_size=16, codebook_dim=16, hidden_size=32, latent_dim=32, intermediate_size=48,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        sliding_window=2, num_quantizers=4, upsample_rates=(2, 2, 2, 2, 2, 2, 15),
        upsampling_ratios=(2,), decoder_dim=128,
    )  # fmt: skip
    with patch.object(codec_layers, "_WIDE_CHANNELS", 64):
        decoder = CodecDecoder(config)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in decoder.state_dict().items():
        if not name.endswith(("frequencies", "first_rows")):
            width = tensor[0].numel() if tensor.ndim > 1 else 16
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / 2 / width**0.5)
            if name.endswith(("norm.weight", "alpha", "inverse_beta")):
                tensor.add_(1)
    return decoder


def _difference() -> float:
    return codec_difference(trial_decoder(), 12)


@pytest.mark.timeout(900)
def test_the_check_at_load_finds_fused_activations_to_work(run_interpreted: Run) -> None:
    """A server's check of its decoder passes where kernels compute correctly."""
    assert run_interpreted(_difference) <= 1e-5


@pytest.mark.parametrize(
    ("of_samples", "of_activations", "fault"),
    [
        (1.0, 1.0, None),
        (1.2, 1.0, "codec: 0.2 from plain kernels, expected at most 0.0005"),
        (math.nan, 1.0, "codec: nan"),
        (1.0, 1.01, "codec: "),
    ],
)
def test_the_loaded_decoder_is_what_is_checked(
    of_samples: float, of_activations: float, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The samples of a loaded decoder are compared before and after it was fused.

    An activation that is wrong by one percent is found.
    """

    def fuse(decoder: CodecDecoder) -> None:
        plain, activate = decoder._run_convolutions, SnakeBeta.forward
        decoder._run_convolutions = lambda x, call: plain(x, call) * of_samples
        wrong = lambda snake, x: activate(snake, x) * of_activations  # noqa: E731
        monkeypatch.setattr(SnakeBeta, "forward", wrong)

    def on_cpu(decoder: CodecDecoder, max_frames: int) -> float:
        with patch.object(CodecDecoder, "device", CPU):
            return codec_difference(decoder, max_frames)

    monkeypatch.setattr(CodecDecoder, "fuse", fuse)
    monkeypatch.setattr(CodecDecoder, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(kernels, "codec_difference", on_cpu)
    found = fuse_codec(trial_decoder(), 3)
    assert found == fault or (found is not None and fault is not None and found.startswith(fault))


def _compiled_call(dtype: torch.dtype) -> None:
    with building(dtype, CPU):
        decoder = CodecDecoder(PUBLISHED_CODEC)
    decoder.fuse()
    state = decoder.new_state(2, 12)
    with torch.inference_mode():
        decoder.decode(torch.zeros(1, 16, 1, dtype=torch.int64), state, torch.tensor([1]))


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("dtype", "registers"), [(torch.float32, 64), (torch.bfloat16, 128)], ids=["32", "16"]
)
def test_kernels_fit_into_registers(
    compile_for: Callable[..., list[Resources]], dtype: torch.dtype, registers: int
) -> None:
    """At published sizes an H100 or H200 runs four programs and more per multiprocessor.

    None spills. With 64 registers they are sixteen; attention in bfloat16 has more.
    """
    found = compile_for(90, _compiled_call, dtype)
    assert len(found) > 30
    assert max(one.registers for one in found) <= registers
    assert max(one.spilled_bytes for one in found) <= 40  # of the sine's reduction of large phases
