"""Loading: the settings give an engine, or an error that explains why they cannot."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from testbed.engine_driving import CUSTOM_VOICE, Driver
from testbed.parity_reference import REFERENCE
from voiceagent_tts.engine import device_choice
from voiceagent_tts.engine import load as loading
from voiceagent_tts.engine.device_choice import check_bits, choose_kernels
from voiceagent_tts.engine.load import ModelSource, folder_source, load_engine, load_runner
from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.errors import CheckpointError, VoiceAgentError
from voiceagent_tts.model.codec_decoder import CodecDecoder
from voiceagent_tts.model.codec_state import DecodeCall
from voiceagent_tts.seam.commands import Prepare, SpeechOptions

OPTIONS = Qwen3Options(str(REFERENCE / CUSTOM_VOICE), device="cpu", rows=2, threads=1)


def load(**options: object) -> object:
    return load_engine(replace(OPTIONS, **options), list, lambda event: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "tpu"}, "device: expected cpu, cuda or cuda:N; got 'tpu'"),
        ({"device": "cuda:99"}, "device: expected a device that PyTorch can use, got cuda:99"),
        ({"attention": "flash"}, "flash-attn: expected bfloat16 or float16"),
        (
            {"kernels": "fused"},
            "expected kernels that work on cpu, got fused: cpu is not an NVIDIA GPU",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises((VoiceAgentError, ValueError), match=sentence):
        load(**options)


def test_a_gpu_needs_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda`, which is also the default, is a device that PyTorch can make the current one."""
    chosen = list[int]()
    index_of = torch.cuda._utils._get_device_index  # as `set_device` reads its argument
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(index_of(device)))
    for device in ("cuda", "cuda:1"):
        with pytest.raises(CheckpointError):
            load_runner(replace(OPTIONS, device=device, model="nowhere"))
    assert chosen == [0, 1]


def test_kernels_that_cannot_be_are_plain_ones(caplog: pytest.LogCaptureFixture) -> None:
    """If fused kernels fail, `auto` uses plain kernels and logs why; on a CPU it logs nothing."""
    config = folder_source(REFERENCE / CUSTOM_VOICE).config
    choices = [
        choose_kernels("auto", config, torch.float32, torch.device(device))
        for device in ("cpu", "meta")
    ]
    assert choices == [("plain", None), ("plain", "meta is not an NVIDIA GPU")]
    assert [record.getMessage() for record in caplog.records] == [
        "using plain kernels, which are slower, because fused kernels failed: "
        "meta is not an NVIDIA GPU"
    ]


def test_few_bits_are_for_a_cpu() -> None:
    """A GPU has no kernels for weights of 8 bits; the error names what it has."""
    options = replace(OPTIONS, precision="int8")
    with pytest.raises(VoiceAgentError, match="for cuda, got int8; try bfloat16"):
        check_bits(options, torch.device("cuda"))


@pytest.fixture
def as_it_was() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    backends = (matmul, cudnn.conv, cudnn.rnn)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    yield
    matmul.allow_tf32 = before[0] == "tf32"
    cudnn.allow_tf32 = before[1] == "tf32"
    for backend, precision in zip(backends, before, strict=True):
        backend.fp32_precision = precision


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.float32, "ieee"), (torch.bfloat16, "tf32")]
)
def test_float32_is_float32(dtype: torch.dtype, precision: str) -> None:
    """A model in float32 computes its products in float32; the codec of others may use TF32."""
    device_choice.set_tf32(dtype)
    assert torch.backends.cuda.matmul.fp32_precision == precision
    assert torch.backends.cudnn.conv.fp32_precision == precision  # type: ignore[attr-defined]


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.parametrize("has_tf32", [False, True])
def test_both_interfaces_of_tf32_can_be_read(has_tf32: bool) -> None:
    """Inductor and TunableOp read the older interface, which must agree with the newer one."""
    for is_allowed in (not has_tf32, has_tf32):
        device_choice.set_tf32(torch.bfloat16 if is_allowed else torch.float32)
    assert torch.backends.cuda.matmul.allow_tf32 is has_tf32
    assert torch.backends.cudnn.allow_tf32 is has_tf32
    assert torch.get_float32_matmul_precision() == ("high" if has_tf32 else "highest")


@pytest.mark.parametrize("instruct", ["Calmly. " * 9, "Calmly. " * 40])
def test_a_deterministic_engine_runs_equal_passes_prepared_or_not(instruct: str) -> None:
    """What was computed ahead depends on the load; so does how a prompt would be divided by it."""
    passes = list[list[tuple[int, int]]]()
    for is_prepared in (False, True):
        driver, ran = Driver(), list[tuple[int, int]]()
        driver.engine = load_engine(
            replace(OPTIONS, capacity=512, has_graphs=False, is_deterministic=True),
            driver._take,
            driver.events.append,
        )
        options, how = (
            SpeechOptions(instruct),
            {"voice": "vivian", "language": "en", "feeding": "token"},
        )
        if is_prepared:
            driver.run(Prepare(**how, options=options))
        calls = driver.engine._runner.batch.passes
        run = calls.run

        def spied(name: str, *size: int) -> None:
            if name == "prefill":
                ran.append(size[:2])  # noqa: B023
            run(name, *size)  # noqa: B023

        calls.run = spied
        driver.run(*driver.open(1, "Some words ", instruct=instruct, more=True, **how))
        passes.append(ran)
    assert passes[0] == passes[1] != []


@pytest.fixture
def failing_codec(monkeypatch: pytest.MonkeyPatch) -> ModelSource:
    """Return a model whose codec cannot be fused, and is on the CPU whatever is asked for."""

    def fuse(decoder: CodecDecoder, max_frames: int) -> str:
        decoder._new_call = lambda *how: DecodeCall(*how)  # is_fused is true from now on
        return "codec: 1 from plain"

    monkeypatch.setattr(loading, "fuse_codec", fuse)
    source = folder_source(REFERENCE / CUSTOM_VOICE)
    return replace(source, codec=lambda device: source.codec(torch.device("cpu")))


def test_a_codec_that_cannot_be_fused_is_plain(
    failing_codec: ModelSource, caplog: pytest.LogCaptureFixture
) -> None:
    codec, fault = loading._load_codec(failing_codec, OPTIONS, torch.device("cuda"))
    assert fault == "codec: 1 from plain"
    assert not codec.decoder.is_fused
    assert caplog.messages[-1].endswith("because fused codec_kernels failed: codec: 1 from plain")
    named = replace(OPTIONS, codec_kernels="fused")
    with pytest.raises(VoiceAgentError, match="codec_kernels that work on cuda, got fused: codec"):
        loading._load_codec(failing_codec, named, torch.device("cuda"))
