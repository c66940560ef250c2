"""Codes equal the official package's in every case of the reference."""

import pytest
import torch
from torch import Tensor

from testbed.parity import compare_codes
from testbed.parity_reference import GREEDY, REFERENCE, Case, LoadTiny, all_cases
from testbed.replay import choices_along
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.model.checkpoint import load_checkpoint

LARGE = pytest.param("custom_voice-1b7", marks=pytest.mark.thorough)
"""The largest checkpoint of the reference."""


@pytest.fixture(scope="module")
def made(load_tiny: LoadTiny) -> dict[str, Tensor]:
    """The codes of every case; the cases of one checkpoint are generated side by side."""
    codes: dict[str, Tensor] = {}
    for name in sorted({case.checkpoint for case in all_cases()}):
        checkpoint = load_tiny(name)
        cases = [case for case in all_cases() if case.checkpoint == name]
        requests = [Request(case.prompt(checkpoint), GREEDY, case.max_frames) for case in cases]
        generated = generate_codes(checkpoint.network, requests, rows=len(cases), capacity=512)
        codes |= dict(zip(map(str, cases), generated, strict=True))
    return codes


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_codes_are_those_of_the_official_package(
    case: Case, load_tiny: LoadTiny, made: dict[str, Tensor]
) -> None:
    """Greedy codes equal the official package's in every frame, or differ only by a near tie."""
    checkpoint = load_tiny(case.checkpoint)
    prompt = case.prompt(checkpoint)
    assert compare_codes(checkpoint.network, case, prompt, made[str(case)]) != "different"


@pytest.mark.parametrize("name", [LARGE, "voice_design-1b7", "base-0b6"])
def test_plain_weights_choose_the_same(name: str, load_tiny: LoadTiny) -> None:
    case = next(case for case in all_cases() if case.checkpoint == name)
    plain = load_checkpoint(REFERENCE / name, is_packed=False)
    request = Request(case.prompt(plain), GREEDY, case.max_frames)
    (made,) = generate_codes(plain.network, [request], 1, 512)
    (packed,) = generate_codes(load_tiny(name).network, [request], 1, 512)
    assert torch.equal(made, packed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [LARGE, "base-0b6"])
def test_half_precision_mostly_chooses_the_same(name: str, dtype: torch.dtype) -> None:
    """Along the official speech a half-precision network chooses over 90 % of its codes."""
    case = next(case for case in all_cases() if case.checkpoint == name)
    half = load_checkpoint(REFERENCE / name, dtype)
    along = choices_along(half.network, case.prompt(half), case.codes, GREEDY.repetition_penalty)
    assert (along.codes == case.codes).float().mean() > 0.9
