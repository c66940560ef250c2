"""Choosing the kernels of matrix products: the first that the precision allows and that works."""

import pytest
import torch

from testbed.parity_reference import REFERENCE, all_cases
from testbed.replay import choices_along
from voiceagent_tts.engine import device_choice
from voiceagent_tts.engine.device_choice import (
    Precision,
    replace_codec_products,
    replace_products,
)
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.layers import Linear
from voiceagent_tts.model.products import (
    HalfWeightsLinear,
    Int8Linear,
    Int8WeightsLinear,
    PackedLinear,
    works,
)

EXACT = {PackedLinear, Linear, HalfWeightsLinear}
EIGHT = {Int8Linear, Int8WeightsLinear}


def loaded() -> Checkpoint:
    return load_checkpoint(REFERENCE / "base-0b6", is_packed=False)


def chosen(precision: Precision) -> tuple[set[type], set[type]]:
    """What a precision chooses for its layers, and for its heads and projections."""
    network = loaded().network
    replace_products(network, precision)
    parts = (network.talker.transformer, network.code_predictor.transformer)
    inner = {id(module) for part in parts for module in part.modules()}
    made = [module for module in network.modules() if type(module) in EXACT | EIGHT]
    return (
        {type(module) for module in made if id(module) in inner},
        {type(module) for module in made if id(module) not in inner},
    )


@pytest.mark.parametrize(
    ("precision", "allowed"),
    [
        ("float32", EXACT),
        ("bfloat16", {PackedLinear, Linear}),
        ("int8", EIGHT),
        ("auto", EXACT | EIGHT),
    ],
)
def test_a_precision_allows_no_other_products(precision: Precision, allowed: set[type]) -> None:
    """Layers have the bits of the precision; heads and projections at least 16."""
    in_layers, elsewhere = chosen(precision)
    assert in_layers and in_layers <= allowed
    assert elsewhere and elsewhere <= EXACT


def test_a_machine_without_the_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no kernel of a precision works, the error says what to try."""
    monkeypatch.setattr(device_choice, "_is_usable", lambda kernel, weight: kernel == "plain")
    assert chosen("float32") == ({Linear}, {Linear})
    with pytest.raises(VoiceAgentError, match="got int8: PyTorch has no kernel .* try float32"):
        chosen("int8")


@pytest.mark.parametrize(("precision", "least"), [("float32", 1.0), ("int8", 0.8)])
def test_fewer_bits_keep_most_choices(precision: Precision, least: float) -> None:
    """Along the reference's codes, float32 chooses each of them, and fewer bits most of them."""
    if precision != "float32" and not works(precision, torch.float32):
        return
    checkpoint = loaded()
    replace_products(checkpoint.network, precision)
    case = next(case for case in all_cases() if case.checkpoint == "base-0b6")
    codes = case.codes[:4]
    found = choices_along(checkpoint.network, case.prompt(checkpoint), codes, 1.05).codes
    assert (found == codes).float().mean() >= least


@pytest.mark.parametrize("most", [3, pytest.param(16, marks=pytest.mark.thorough)])
def test_float32_reads_float16_only_where_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Weights stored in bfloat16 give the reference's codes as float16; others stay float32."""
    monkeypatch.setattr(device_choice, "_SMALL", 0)
    network = loaded().network
    weight = network.talker.head.weight
    weight[0, 0] += 2.0**-20
    assert "float16-weights" not in replace_products(network, "float32")
    if not works("float16-weights", torch.float32):
        return
    checkpoint = loaded()
    assert set(replace_products(checkpoint.network, "float32")) == {"float16-weights"}
    cases = [case for case in all_cases() if case.checkpoint == "base-0b6"][:most]
    assert len(cases) == most
    for case in cases:
        along = choices_along(checkpoint.network, case.prompt(checkpoint), case.codes, 1.05)
        assert (along.codes == case.codes).float().mean() > 0.99


def test_a_codec_makes_nearly_the_same_samples_from_float16_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The noise of weights read as float16 is 35 dB below the samples of a random codec."""
    monkeypatch.setattr(device_choice, "_SMALL", 0)
    codec = load_codec(REFERENCE / "base-0b6", is_packed=False)
    codes = torch.randint(64, (8, 16), generator=torch.Generator().manual_seed(1))
    expected = codec.decode(codes)
    replace_codec_products(codec.decoder)
    noise = codec.decode(codes) - expected
    assert 0 < noise.norm() < 10 ** (-35 / 20) * expected.norm()
