"""`voiceagent-tts doctor --gpu`: test the GPU, and suggest --rows."""

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from voiceagent_tts.core import FRAME_S
from voiceagent_tts.extras import install_hint
from voiceagent_tts.plugins.checks.doctor import Finding, print_finding

if TYPE_CHECKING:
    import torch

    from voiceagent_tts.plugins.checks.self_test import Speed
    from voiceagent_tts.plugins.checks.step_times import StepTime

DUTY = 0.8
"""Share of a frame's duration that a step may take; the rest is for prefill and host delays."""
_SMALLEST_GIB = 6
_FREE_SHARE = 0.85
"""Share of the free memory for rows; the rest is for graphs and activations."""


def examine_gpu(model: str | None) -> bool:
    """Test the GPU, print a line for each finding, and return whether it can serve.

    Args:
        model: folder or id of a Qwen3-TTS model; None uses random weights of the 1.7B size.

    Raises:
        CheckpointError: the model is not found.
    """
    console, can_serve = Console(soft_wrap=True, highlight=False), True
    for finding in _findings(model):
        print_finding(console, finding)
        can_serve = can_serve and finding.verdict != "bad"
    console.print("This GPU can serve." if can_serve else "No GPU here can serve yet.")
    return can_serve


def _findings(model: str | None) -> Iterator[Finding]:
    finding = _cuda()
    yield finding
    if finding.verdict == "bad":
        return
    import torch

    device = torch.device("cuda")
    properties = torch.cuda.get_device_properties(device)
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    yield card_finding(properties.name, properties.total_memory, has_bfloat16=has_bfloat16)
    dtype = torch.bfloat16 if has_bfloat16 else torch.float16
    yield _kernels(device, dtype)
    yield _graphs(device)
    yield from _speed(device, model, dtype)


def _cuda() -> Finding:
    """Report whether torch can use a GPU, and if not, why."""
    if importlib.util.find_spec("torch") is None:
        return Finding("CUDA", "bad", "torch is not installed", install_hint("qwen3"))
    import torch

    if torch.version.cuda is None:
        remedy = "install the build for your CUDA version: https://pytorch.org/get-started/locally"
        return Finding("CUDA", "bad", f"torch {torch.__version__} is a CPU-only build", remedy)
    build = f"torch {torch.__version__} for CUDA {torch.version.cuda}"
    if torch.cuda.is_available():
        return Finding("CUDA", "ok", build)
    if shutil.which("nvidia-smi") is None:
        remedy = "install NVIDIA's driver; in a container, run with --gpus all"
        return Finding("CUDA", "bad", f"{build}, but no NVIDIA driver", remedy)
    remedy = "check nvidia-smi: the driver may be too old for this CUDA version"
    return Finding("CUDA", "bad", f"{build} finds no GPU", remedy)


def card_finding(name: str, total_bytes: int, *, has_bfloat16: bool) -> Finding:
    """Report the GPU, its memory and missing features."""
    gib = total_bytes / 2**30
    detail = f"{name}, {gib:.0f} GiB"
    if not has_bfloat16:
        remedy = "the talker computes in float16 and the code predictor in float32, which is slower"
        return Finding("card", "note", f"{detail}, no bfloat16", remedy)
    if gib < _SMALLEST_GIB:
        remedy = f"the 0.6B model needs {_SMALLEST_GIB} GB with its CUDA graphs"
        return Finding("card", "note", f"{detail}, little memory", remedy)
    return Finding("card", "ok", f"{detail}, bfloat16")


def _kernels(device: "torch.device", dtype: "torch.dtype") -> Finding:
    from voiceagent_tts.model.kernels import find_fault
    from voiceagent_tts.plugins.checks.random_weights import PUBLISHED

    fault = find_fault(PUBLISHED.talker_config, dtype, device)
    if fault is None:
        return Finding("kernels", "ok", "fused; results match the plain kernels")
    remedy = "fused kernels are faster; they need Triton, a C compiler and Python's headers"
    return Finding("kernels", "note", f"plain: {fault}", remedy)


def _graphs(device: "torch.device") -> Finding:
    from voiceagent_tts.plugins.checks.self_test import graphs_agree, tiny_model

    try:
        agree = graphs_agree(tiny_model(device))
    except RuntimeError as error:
        return Finding(
            "graphs",
            "bad",
            str(error).splitlines()[0],
            "an engine serves without graphs then, and slowly",
        )
    if not agree:
        detail = "samples differ from those of eager passes"
        return Finding("graphs", "bad", detail, "report this as a bug")
    return Finding("graphs", "ok", "captured; samples equal those of eager passes")


def _speed(device: "torch.device", model: str | None, dtype: "torch.dtype") -> Iterator[Finding]:
    import torch

    from voiceagent_tts.cli.models import model_folder
    from voiceagent_tts.plugins.checks.self_test import measure_speed, published_model, stored_model

    name = model or "random weights of 1.7B"
    try:
        if model is None:
            loaded = published_model(device, dtype)
        else:
            loaded = stored_model(Path(model_folder(model)), device, dtype)
        free_bytes = int(_FREE_SHARE * torch.cuda.mem_get_info(device)[0])
        speed = measure_speed(loaded, free_bytes)
    except torch.cuda.OutOfMemoryError as error:
        detail = f"{name}: {str(error).splitlines()[0]}"
        yield Finding("speed", "bad", detail, "free GPU memory, or use a 0.6B model")
        return
    yield speed_finding(name, speed.times)
    yield rows_finding(speed)


def speed_finding(name: str, times: Sequence["StepTime"]) -> Finding:
    """Report the step times; a GPU that is slower than real time with one row cannot serve."""
    steps = ", ".join(f"{time.step_s * 1000:.1f} ms with {time.rows}" for time in times)
    detail = f"{name}: a step takes {steps} rows"
    if times[0].step_s > FRAME_S:
        remedy = f"too slow: a step must take less than {FRAME_S * 1000:.0f} ms; use a faster GPU"
        return Finding("speed", "bad", detail, remedy)
    return Finding("speed", "ok", detail)


def rows_finding(speed: "Speed") -> Finding:
    """Report how many rows memory and time allow, and the --rows to use."""
    from voiceagent_tts.plugins.checks.step_times import rows_in_time

    in_memory, in_time = speed.rows_in_memory, rows_in_time(speed.times, DUTY * FRAME_S)
    at_least = "at least " if in_time == speed.times[-1].rows else ""
    detail = f"memory fits {in_memory} rows of one minute; speed allows {at_least}{in_time}"
    rows = min(in_memory, in_time)
    if not rows:
        return Finding("rows", "bad", detail, "use a smaller model or a larger GPU")
    return Finding("rows", "ok", detail, f"serve with --rows {rows}")
