"""Products of few rows with the norm or gate before them equal the plain operations.

Without a GPU they run in Triton's interpreter, and are compiled for GPUs that this machine lacks.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from testbed.parity_reference import GREEDY, REFERENCE, all_cases
from testbed.triton_here import Resources, Where
from voiceagent_tts.checks.random_weights import PUBLISHED
from voiceagent_tts.engine import load
from voiceagent_tts.engine.generate import Request, generate_codes
from voiceagent_tts.engine.load import load_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.errors import VoiceAgentError
from voiceagent_tts.model.attention import attend_sdpa
from voiceagent_tts.model.checkpoint import load_checkpoint
from voiceagent_tts.model.config import TalkerConfig, read_model_config
from voiceagent_tts.model.kernels import TOLERANCES, make_operations, product_differences
from voiceagent_tts.model.layers import Kernels, Linear, RMSNorm

TINY = read_model_config(REFERENCE / "custom_voice-1b7").talker_config
CPU = torch.device("cpu")
FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
pytestmark = pytest.mark.xdist_group("fused")  # one worker starts the interpreter


def _differences(
    config: TalkerConfig, dtype: torch.dtype, device: torch.device
) -> list[tuple[str, float, float]]:
    return list(product_differences(config, dtype, device))


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=["fp32", "bf16"])
def test_the_check_of_an_engine_finds_them_equal(where: Where, dtype: torch.dtype) -> None:
    """Sums are bit-identical; products differ by the order of their sums."""
    run, device = where
    found: list[tuple[str, float, float]] = run(_differences, TINY, dtype, device)  # type: ignore[assignment]
    assert len(found) == 2 * 4
    assert [one for one in found if not one[1] <= one[2]] == []
    assert not any(difference for name, difference, _ in found if name.startswith("sum"))


@torch.inference_mode()
def _layer(
    kind: Kernels, shape: tuple[int, ...], outputs: int, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Return the sum, and the products after a norm and a gate; the residual is not contiguous."""
    generator = torch.Generator().manual_seed(len(shape) + outputs)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(device, dtype)

    width = shape[-1]
    norm = RMSNorm(width, 1e-6).to(device, dtype)
    norm.weight.copy_(1 + draw(width) / 4)
    up, down = Linear(width, outputs).to(device, dtype), Linear(width, outputs).to(device, dtype)
    for linear in (up, down):
        linear.weight.copy_(draw(outputs, width) / width**0.5)
    operations = make_operations(kind, attend_sdpa)
    added = draw(*shape[:-1], 2 * width)[..., ::2]
    total, product = operations.norm_product(draw(*shape), added, norm, up)
    gated = operations.gate_product(draw(*shape[:-1], 2 * width), down)
    return [one.float().cpu() for one in (total, product, gated)]


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("shape", "outputs"),
    [((1, 1, 64), 16), ((16, 1, 130), 33), ((3, 2, 200), 100), ((1, 96), 250), ((17, 1, 64), 24)],
    ids=["one row", "all rows", "two positions", "odd outputs", "too many rows"],
)
def test_any_shape_is_the_plain_one(
    where: Where, shape: tuple[int, ...], outputs: int, dtype: torch.dtype
) -> None:
    """Any number of rows, inputs and outputs gives the plain results, above the limit too."""
    run, device = where
    expected = _layer("plain", shape, outputs, dtype, CPU)
    found: list[Tensor] = run(_layer, "skinny", shape, outputs, dtype, device)  # type: ignore[assignment]
    assert torch.equal(found[0], expected[0])
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= TOLERANCES[dtype] * other.abs().max()


def _codes(kind: Kernels, device: torch.device, frames: int) -> list[Tensor]:
    """Generate the codes of two texts together, with a tiny network in float32."""
    name = "custom_voice-1b7"
    checkpoint = load_checkpoint(REFERENCE / name, device=device, kernels=kind, is_packed=False)
    cases = [case for case in all_cases() if case.checkpoint == name][:2]
    requests = [Request(case.prompt(checkpoint), GREEDY, frames) for case in cases]
    return generate_codes(checkpoint.network, requests, rows=2, capacity=512)


@pytest.mark.thorough
@pytest.mark.timeout(400)  # the interpreter takes milliseconds for each program
def test_a_network_chooses_the_same_codes(where: Where) -> None:
    """In float32, a network with these products gives the plain network's codes."""
    run, device = where
    frames = 2 if device.type == "cpu" else 24
    found: list[Tensor] = run(_codes, "skinny", device, frames)  # type: ignore[assignment]
    plain = _codes("plain", device, frames)
    assert [codes.tolist() for codes in found] == [codes.tolist() for codes in plain]


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_fit_into_registers(
    compile_for: Callable[..., list[Resources]], capability: int
) -> None:
    """At published sizes in bfloat16 no kernel spills registers."""
    found = compile_for(capability, _differences, PUBLISHED.talker_config, BFLOAT16, CPU)
    assert len(found) == 2 * 3
    assert max(one.spilled_bytes for one in found) == 0
    assert max(one.registers for one in found) <= 255
    assert max(one.shared_bytes for one in found) <= 49_152


def test_weights_of_8_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """These products read plain weights, so that 8-bit ones are an error that says what to try."""
    monkeypatch.setattr(load, "find_device", torch.device)
    options = Qwen3Options(model="none", device="cuda", kernels="skinny", quantize="int8")
    with pytest.raises(VoiceAgentError, match="got quantize int8 with kernels skinny"):
        load_runner(options)
