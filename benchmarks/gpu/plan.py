"""The sections of a run, in their order: the seconds that each may take, and what each needs.

The facts that decide what to optimise come first: a short run ends after them. Standard library
only.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

_SERVER = (
    "fastapi", "httpx", "limits", "prometheus_client", "py3langid", "pydantic",
    "pydantic_settings", "python_multipart", "sentencex", "soundfile", "soxr", "structlog",
    "uvicorn", "websockets", "zmq",
)  # fmt: skip
_TESTS = ("pytest", "pytest_asyncio", "pytest_timeout", "xdist", "hypothesis")


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a section.

    Attributes:
        budget_s: seconds that it may take.
        modules: modules that it imports in addition to those of torch, transformers and numpy.
        needs_gpu: whether it cannot run on a CPU.
    """

    budget_s: float
    modules: tuple[str, ...] = ()
    needs_gpu: bool = False


PLANS = {
    "machine": Plan(40),
    "faults": Plan(120, needs_gpu=True),
    "quick-1.7b": Plan(120),
    "plain-codec": Plan(90, needs_gpu=True),
    "checkpoints": Plan(60, _SERVER),
    "load-1.7b": Plan(200, _SERVER),
    "load-aligned": Plan(120, _SERVER),
    "tests": Plan(180, (*_TESTS, *_SERVER)),
    "paced-1.7b": Plan(120, _SERVER),
    "engine-1.7b": Plan(120),
    "engine-0.6b": Plan(90),
    "cap-1.7b": Plan(60),
    "cap-0.6b": Plan(60),
    "plain": Plan(90),
    "flash": Plan(90, ("flash_attn",)),
}


def obstacle(section: str, device: str, wheels: Path) -> str:
    """Return why a section cannot run on this machine; empty if it can.

    Args:
        section: key of `PLANS`.
        device: device of the run, as PyTorch names it.
        wheels: folder that `benchmarks.gpu.wheels` fills.
    """
    plan = PLANS[section]
    if plan.needs_gpu and not device.startswith("cuda"):
        return f"it needs an NVIDIA GPU, and this run is on {device}"
    missing = [name for name in plan.modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed here; {_advice(wheels)}"
    return ""


def _advice(wheels: Path) -> str:
    return f"run `make gpu-wheels` where there is a network, and copy the wheels to {wheels}"
