"""The roofline, checked against counted parameters and figures computed by hand."""

from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from benchmarks.engine.roofline import Card, Roofline, body_weights, codec_weights, known_card
from testbed.published import CODEC, SIZES, model_config
from voiceagent_tts.model.checkpoint import build_network, building
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.config import (
    CodecConfig,
    ModelConfig,
    read_codec_config,
    read_model_config,
)

REFERENCE = Path(__file__).parents[1] / "reference" / "custom_voice-1b7"
DECODER = TypeAdapter(CodecConfig).validate_python(CODEC).decoder_config
CARD = Card("worked by hand", 4.8e12, 790e12)


def roofline(size: str) -> Roofline:
    """The roofline of a published size in bfloat16."""
    config = model_config(SIZES[size], "custom_voice")
    return Roofline(TypeAdapter(ModelConfig).validate_python(config), DECODER)


def matrices(module: torch.nn.Module) -> int:
    """Count the numbers in weights of two or more dimensions."""
    return sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)


def test_weights_are_those_of_the_network() -> None:
    """The weights of a pass are those of its modules, without norms, for all sizes."""
    for config in (roofline("1.7b").model, read_model_config(REFERENCE)):
        network = build_network(config, torch.bfloat16, torch.device("meta"), "sdpa")
        talker, predictor = network.talker.transformer, network.code_predictor.transformer
        for transformer, sizes in (
            (talker, config.talker_config),
            (predictor, config.talker_config.code_predictor_config),
        ):
            norms = sum(
                weight.numel() for name, weight in transformer.named_parameters() if "norm" in name
            )
            everything = sum(weight.numel() for weight in transformer.parameters())
            assert body_weights(sizes) == everything - norms


def test_codec_weights_are_those_of_the_decoder() -> None:
    """The matrices of the codec's decoder are counted, for published and tiny sizes."""
    for sizes in (DECODER, read_codec_config(REFERENCE / "speech_tokenizer").decoder_config):
        with building(torch.float32, torch.device("meta")):
            decoder = CodecDecoder(sizes)
        codebooks = matrices(decoder.codebooks)
        assert codec_weights(sizes) == pytest.approx(matrices(decoder) - codebooks, rel=1e-3)


@pytest.mark.parametrize(
    ("size", "rows", "total_ms"),
    [("1.7b", 1, 1.12), ("1.7b", 32, 1.46), ("1.7b", 128, 2.52), ("1.7b", 256, 4.28),
     ("1.7b", 512, 7.97), ("0.6b", 1, 0.70), ("0.6b", 128, 2.11)],
)  # fmt: skip
def test_steps_of_the_published_sizes(size: str, rows: int, total_ms: float) -> None:
    """At 4.8 TB/s and 790 TFLOP/s, 200 positions and windows of 12 frames: to three digits."""
    step = roofline(size).step(CARD, rows, 200, 12)
    assert step.total_s * 1000 == pytest.approx(total_ms, rel=0.03)


@pytest.mark.parametrize(
    ("device", "name"),
    [("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA H100 PCIe", "H100 PCIe"),
     ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100-SXM4-40GB", "A100"),
     ("NVIDIA L40S", "L40S"), ("NVIDIA GeForce RTX 4090", "RTX 4090")],
)  # fmt: skip
def test_cards_are_known_by_their_drivers_name(device: str, name: str) -> None:
    """If several names match, the most precise one wins."""
    card = known_card(device)
    assert card is not None
    assert card.name == name
    assert known_card("Quadro K620") is None
