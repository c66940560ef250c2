"""The sections of a run, in their order: what each measures, for how long, and what it needs.

The facts that decide what to optimise come first: a short run ends after them. Standard library
only.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_SERVER = (
    "fastapi", "httpx", "limits", "prometheus_client", "psutil", "py3langid", "pydantic",
    "pydantic_settings", "python_multipart", "rich", "sentencex", "soundfile", "soxr", "structlog",
    "uvicorn", "websockets", "zmq",
)  # fmt: skip
_TESTS = ("pytest", "pytest_asyncio", "pytest_timeout", "xdist", "hypothesis")
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_QUICK_ROWS, _VARIANT_ROWS = (1, 64, 256), (1, 16, 64)


@dataclass(frozen=True, slots=True)
class Section:
    """What a section measures.

    Attributes:
        measure: a function of this package, as `MODULE.FUNCTION`.
        budget_s: seconds that it may take.
        arguments: arguments of the function after its `Ground`.
        modules: modules that it imports in addition to those of torch, transformers and numpy.
        needs_gpu: whether it cannot run on a CPU.
    """

    measure: str
    budget_s: float
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    modules: tuple[str, ...] = ()
    needs_gpu: bool = False

    def obstacle(self, device: str, wheels: Path) -> str:
        """Return why it cannot run on this machine; empty if it can.

        Args:
            device: device of the run, as PyTorch names it.
            wheels: folder that `benchmarks.gpu.wheels` fills.
        """
        if self.needs_gpu and not device.startswith("cuda"):
            return f"it needs an NVIDIA GPU, and this run is on {device}"
        missing = [name for name in self.modules if importlib.util.find_spec(name) is None]
        if missing:
            return (
                f"{', '.join(missing)} not installed here; run `make gpu-wheels` where there is "
                f"a network, and copy the wheels to {wheels}"
            )
        return ""


def _engine(budget_s: float, rows: tuple[int, ...], size: str = "1.7b", **options: Any) -> Section:
    return Section("engine_sections.engine", budget_s, {"size": size, "rows": rows, **options})


def _load(
    budget_s: float, rates: tuple[int, ...], together: tuple[int, ...], **more: Any
) -> Section:
    arguments = {"rates": rates, "together": together, **more}
    return Section("served_sections.load", budget_s, arguments, _SERVER)


def _cap(size: str, gigabytes: float) -> Section:
    return Section("engine_sections.memory_cap", 60, {"size": size, "gigabytes": gigabytes})


SECTIONS = {
    "machine": Section("engine_sections.machine", 40),
    "faults": Section("engine_sections.faults", 120, needs_gpu=True),
    "quick-1.7b": _engine(120, _QUICK_ROWS),
    "plain-codec": replace(_engine(90, _QUICK_ROWS, codec_kernels="plain"), needs_gpu=True),
    "checkpoints": Section("served_sections.checkpoints", 60, modules=_SERVER),
    "load-1.7b": _load(200, (1, 20, 60), (256, 64)),
    "load-aligned": _load(120, (20,), (64,), aligner="online"),
    "tests": Section("served_sections.tests", 180, modules=(*_TESTS, *_SERVER)),
    "paced-1.7b": _load(120, (), (256,), max_lead_s=0.5),
    "engine-1.7b": _engine(120, _ROWS),
    "engine-0.6b": _engine(90, _ROWS, size="0.6b"),
    "cap-1.7b": _cap("1.7b", 8.0),
    "cap-0.6b": _cap("0.6b", 6.0),
    "plain": _engine(90, _VARIANT_ROWS, attention="sdpa", kernels="plain"),
    "flash": replace(
        _engine(90, _VARIANT_ROWS, attention="flash", kernels="plain"), modules=("flash_attn",)
    ),
}
