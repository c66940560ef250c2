"""Eight-bit weights: less memory, nearly the same codes, and clear errors where unsupported."""

import sys

import pytest
import torch

from testbed.parity_reference import GREEDY, REFERENCE, all_cases
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.quantized import quantize


def test_without_torchao_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchao the error says what to install."""
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    network = load_checkpoint(REFERENCE / "base-0b6", is_packed=False).network
    with pytest.raises(VoiceAgentError, match="quantize int8 needs torchao: install the extra"):
        quantize(network, "int8")


def test_rounded_weights_speak() -> None:
    """Both transformers shrink to a quarter of float32, and most chosen codes stay equal."""
    pytest.importorskip("torchao")
    checkpoint = load_checkpoint(REFERENCE / "base-0b6", is_packed=False)
    network = checkpoint.network
    transformers = (network.talker.transformer, network.code_predictor.transformer)
    matrices = [
        parameter.numel() * 4
        for transformer in transformers
        for name, parameter in transformer.named_parameters()
        if "norm" not in name
    ]
    saved = quantize(network, "int8")
    assert 0.6 * sum(matrices) < saved < 0.75 * sum(matrices)
    case = next(case for case in all_cases() if case.checkpoint == "base-0b6")
    request = Request(case.prompt(checkpoint), GREEDY, case.max_frames)
    (codes,) = generate_codes(network, [request], rows=1, capacity=256)
    compared = min(len(codes), len(case.codes))
    assert (codes[0] == case.codes[0]).float().mean() > 0.5
    assert compared > 0
    assert torch.isfinite(network.talker.embed_codec(codes[:, 0])).all()
