"""What runs a graph: the GPU where ONNX Runtime can use one and it is faster, else the CPU."""

from dataclasses import replace

import pytest

from voiceagent_tts.errors import CheckpointError
from voiceagent_tts.hibari.published import published_voices
from voiceagent_tts.kokoro.load import fastest
from voiceagent_tts.phonemes.graph import CPU, CUDA, Provider, providers, session
from voiceagent_tts.phonemes.load import Trial
from voiceagent_tts.phonemes.reading import LoadedVoice
from voiceagent_tts.seam.events import VoiceDetails

GPU: Provider = (CUDA, {"device_id": 0})
GPU_BUILD = ["TensorrtExecutionProvider", CUDA, CPU]
CPU_BUILD = ["AzureExecutionProvider", CPU]


@pytest.mark.parametrize(
    ("device", "available", "expected"),
    [
        (None, CPU_BUILD, [CPU]),
        ("cpu", GPU_BUILD, [CPU]),
        (None, GPU_BUILD, [GPU, CPU]),
        ("cuda", GPU_BUILD, [GPU]),
        ("cuda:3", GPU_BUILD, [(CUDA, {"device_id": 3})]),
    ],
)
def test_the_device_and_the_build_decide(
    device: str | None, available: list[str], expected: list[Provider]
) -> None:
    """Without a device both are tried where there is a choice."""
    assert providers(device, available) == expected


def test_a_gpu_that_onnx_runtime_cannot_use_is_refused() -> None:
    with pytest.raises(CheckpointError, match="onnxruntime-gpu"):
        providers("cuda:1", CPU_BUILD)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_another_provider_than_the_wanted_one_is_an_error() -> None:
    """ONNX Runtime itself goes on with the CPU, and only logs it."""
    model = published_voices()["heart"].file.read_bytes()
    with pytest.raises(RuntimeError, match=f"expected {CUDA} to run the model, got {CPU}"):
        session(model, GPU)


@pytest.mark.parametrize(
    ("gpu_rtf", "cpu_rtf", "expected"), [(0.1, 0.4, GPU), (0.4, 0.1, CPU), (None, 0.4, CPU)]
)
def test_the_faster_one_is_taken_and_one_that_fails_left_out(
    monkeypatch: pytest.MonkeyPatch,
    voice: LoadedVoice,
    gpu_rtf: float | None,
    cpu_rtf: float,
    expected: Provider,
) -> None:
    """Both are measured where nobody has chosen."""
    rtfs = {"gpu": gpu_rtf, "cpu": cpu_rtf}
    monkeypatch.setattr(Trial, "rtf", lambda self, voices: rtfs[next(iter(voices))])

    def load(provider: Provider) -> dict[str, LoadedVoice]:
        name = "cpu" if provider == CPU else "gpu"
        if rtfs[name] is None:
            raise RuntimeError("CUDA failure 100: no device")
        return {name: replace(voice, details=VoiceDetails(name, "speaker"))}

    voices, provider = fastest([GPU, CPU], load)
    assert provider == expected and list(voices) == ["cpu" if expected == CPU else "gpu"]
    if gpu_rtf is None:
        with pytest.raises(RuntimeError, match="no device"):
            fastest([GPU], load)
