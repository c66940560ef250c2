"""Choosing the kernels of matrix products: the first that the precision allows and that works."""

import pytest
import torch

from testbed.parity_reference import REFERENCE, all_cases
from voiceagent_tts.engine import product_choice
from voiceagent_tts.engine.load import load_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.engine.product_choice import (
    Precision,
    Products,
    Shape,
    choose_codec_products,
    choose_products,
)
from voiceagent_tts.engine.replay import choices_along
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import Checkpoint, load_checkpoint
from voiceagent_tts.model.codec import load_codec
from voiceagent_tts.model.products import Int4Linear, Int8Linear, Kernel, works

EIGHT: list[Kernel] = ["int8", "int8-weights"]


def loaded() -> Checkpoint:
    """A small checkpoint with plain products."""
    return load_checkpoint(REFERENCE / "base-0b6", is_packed=False)


def chosen(precision: Precision) -> Products:
    """What a precision chooses for it."""
    return choose_products(loaded().network, precision)


@pytest.mark.parametrize(
    ("precision", "allowed"),
    [
        ("float32", {"packed", "plain", "float16-weights"}),
        ("bfloat16", {"packed", "plain"}),
        ("int8", {"int8", "int8-weights"}),
        ("int4", {"int4", "int8", "int8-weights"}),
        ("auto", {"packed", "plain", "float16-weights", "bfloat16", "int8", "int8-weights"}),
    ],
)
def test_a_precision_allows_no_other_products(precision: Precision, allowed: set[str]) -> None:
    """Layers have the bits of the precision; heads and projections at least bfloat16."""
    found = chosen(precision)
    assert set(found.in_layers.values()) <= allowed
    assert found.elsewhere
    assert set(found.elsewhere.values()) <= {"packed", "plain", "float16-weights", "bfloat16"}


def test_a_choice_is_one_line() -> None:
    """The line of a choice names each kernel with its shapes."""
    shapes = [Shape(64, 96, torch.float32), Shape(32, 96, torch.float32)]
    made = Products(dict(zip(shapes, EIGHT, strict=True)), {shapes[0]: "bfloat16"})
    assert str(made) == (
        "int8 for 64x96; int8-weights for 32x96; bfloat16 for heads and projections"
    )


def test_a_machine_without_the_kernels_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no kernel of a precision works, the error says what to try."""
    monkeypatch.setattr(product_choice, "_is_usable", lambda kernel, shape: kernel == "plain")
    assert set(chosen("float32").in_layers.values()) == {"plain"}
    with pytest.raises(VoiceAgentError, match="got int8: PyTorch has no kernel .* try float32"):
        chosen("int8")


@pytest.mark.parametrize(("precision", "least"), [("float32", 1.0), ("int8", 0.8), ("int4", 0.5)])
def test_fewer_bits_keep_most_choices(precision: Precision, least: float) -> None:
    """Along the reference's codes, float32 chooses each of them, and fewer bits most of them."""
    if precision != "float32" and not works(precision, torch.float32):
        return
    checkpoint = loaded()
    choose_products(checkpoint.network, precision).apply(checkpoint.network)
    case = next(case for case in all_cases() if case.checkpoint == "base-0b6")
    codes = case.codes[:4]
    found = choices_along(checkpoint.network, case.prompt(checkpoint), codes, 1.05).codes
    assert (found == codes).float().mean() >= least


@pytest.mark.parametrize("most", [3, pytest.param(16, marks=pytest.mark.thorough)])
def test_float32_reads_float16_only_where_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Weights stored in bfloat16 give the reference's codes as float16; others stay float32."""
    monkeypatch.setattr(product_choice, "_SMALL", 0)
    network = loaded().network
    weight = network.talker.head.weight
    weight[0, 0] += 2.0**-20
    found = choose_products(network, "float32")
    assert "float16-weights" not in found.in_layers.values()
    if not works("float16-weights", torch.float32):
        return
    checkpoint = loaded()
    found = choose_products(checkpoint.network, "float32")
    assert {*found.in_layers.values(), *found.elsewhere.values()} == {"float16-weights"}
    found.apply(checkpoint.network)
    cases = [case for case in all_cases() if case.checkpoint == "base-0b6"][:most]
    assert len(cases) == most
    for case in cases:
        along = choices_along(checkpoint.network, case.prompt(checkpoint), case.codes, 1.05)
        assert (along.codes == case.codes).float().mean() > 0.99


def test_a_codec_makes_nearly_the_same_samples_from_float16_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The noise of weights read as float16 is 35 dB below the samples of a random codec."""
    monkeypatch.setattr(product_choice, "_SMALL", 0)
    codec = load_codec(REFERENCE / "base-0b6", is_packed=False)
    codes = torch.randint(64, (8, 16), generator=torch.Generator().manual_seed(1))
    expected = codec.decode(codes)
    choose_codec_products(codec.decoder)
    noise = codec.decode(codes) - expected
    assert 0 < noise.norm() < 10 ** (-35 / 20) * expected.norm()


@pytest.mark.parametrize(
    ("precision", "kind"), [("int8", Int8Linear), ("int4", (Int4Linear, Int8Linear))]
)
def test_an_engine_speaks_in_fewer_bits(precision: Precision, kind: type) -> None:
    """`precision` reaches the layers of an engine, whose rows make frames."""
    if not works("int8", torch.float32):
        return
    options = Qwen3Options(str(REFERENCE / "custom_voice-1b7"), "cpu", precision, rows=2, threads=1)
    checkpoint, _ = load_runner(options)
    transformer = checkpoint.network.talker.transformer
    assert any(isinstance(module, kind) for module in transformer.modules())
