"""Loading: what was asked for becomes an engine, or a sentence that says why not."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from testbed.engine_driving import CUSTOM_VOICE
from testbed.parity_reference import REFERENCE
from voiceagent_tts.engine.load import (
    FolderSource,
    Qwen3Options,
    _choose_kernels,
    load_engine,
    load_runner,
)
from voiceagent_tts.errors import CheckpointError, VoiceAgentError

OPTIONS = Qwen3Options(str(REFERENCE / CUSTOM_VOICE), device="cpu", rows=2, threads=1)


def load(**options: object) -> object:
    """An engine that nobody speaks to."""
    return load_engine(replace(OPTIONS, **options), list, lambda event: None)  # type: ignore[arg-type]


def test_a_row_has_four_thousand_positions() -> None:
    """Five minutes fit a row; pages that nobody has filled take none of a CPU's memory."""
    engine = load()
    assert engine._runner.capacity == 4096  # type: ignore[attr-defined]
    assert engine._runner.free_pages == 2 * 16  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu"}, "device: expected cpu, cuda or cuda:N; got 'tpu'"),
        ({"device": "cuda:99"}, "device: there is no cuda:99 here"),
        ({"codec_device": "cuda:1"}, "codec_device is cuda:1 beside a model on cpu"),
        ({"attention": "flash"}, "flash-attn computes in bfloat16 or float16"),
        ({"kernels": "fused"}, "kernels is fused, which cannot be here: cpu is no NVIDIA GPU"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], sentence: str) -> None:
    """A setting that does not go with this machine is refused in a sentence, before it loads."""
    with pytest.raises((VoiceAgentError, ValueError), match=sentence):
        load(**options)


def test_a_gpu_needs_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda`, which is also the default, is a device that PyTorch can make the current one."""
    chosen = list[int]()
    index_of = torch.cuda._utils._get_device_index  # as `set_device` reads what it is given
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(index_of(device)))
    for device in ("cuda", "cuda:1"):
        with pytest.raises(CheckpointError):
            load_runner(replace(OPTIONS, device=device, model="nowhere"))
    assert chosen == [0, 1]


def test_kernels_that_cannot_be_are_plain_ones(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody insists on fused ones, an engine runs without, and says why; not on a CPU."""
    config = FolderSource(REFERENCE / CUSTOM_VOICE).config
    choices = [
        _choose_kernels("auto", config, torch.float32, torch.device(device))
        for device in ("cpu", "meta")
    ]
    assert choices == ["plain", "plain"]
    assert [record.getMessage() for record in caplog.records] == [
        "plain kernels run, which are slower: fused ones cannot be here: meta is no NVIDIA GPU"
    ]


def test_an_engine_says_its_kernels(caplog: pytest.LogCaptureFixture) -> None:
    """One line tells what runs where."""
    with caplog.at_level("INFO", logger=_choose_kernels.__module__):
        load()
    said = f"{CUSTOM_VOICE} runs on cpu in float32, with plain kernels"
    assert said in [record.getMessage() for record in caplog.records]


def test_missing_torchao_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight-bit weights without their package end in a sentence."""
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(VoiceAgentError, match="install the extra `quantize`"):
        load(quantize="fp8")


@pytest.fixture
def as_it_was() -> Iterator[None]:
    """The precision of products, of this process, is left as it was."""
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    yield
    for backend, precision in zip(backends, before, strict=True):
        backend.fp32_precision = precision


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize(("options", "precision"), [({}, "ieee"), ({"has_tf32": True}, "tf32")])
def test_float32_is_float32_unless_told_otherwise(options: dict[str, bool], precision: str) -> None:
    """A model in float32 has its products in float32, where nobody allows the rounding of TF32."""
    load(**options)
    assert torch.backends.cuda.matmul.fp32_precision == precision
    assert torch.backends.cudnn.conv.fp32_precision == precision  # type: ignore[attr-defined]
