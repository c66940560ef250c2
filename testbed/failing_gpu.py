"""Fault injection: a GPU, in place of the CPU, that fails with CUDA's after-effects.

An illegal access makes every later call of the process fail, and an invalidated capture makes
PyTorch's allocator refuse to release memory. Only a new process has a working GPU again. Needs
neither a GPU nor a test framework. `python -m testbed.failing_gpu ...` is the worker's program.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from voiceagent_tts.engine import cuda_graph, device_choice, ladder, load, make_runner
from voiceagent_tts.engine.cuda_graph import Compile
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.layers import Kernels
from voiceagent_tts.seam.engine import Engine
from voiceagent_tts.seam.engine_kind import RUNG_VARIABLE, WorkerSpec
from voiceagent_tts.worker.__main__ import main
from voiceagent_tts.worker.host import _Host

ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"
UNDERWAY = "captures_underway.empty() INTERNAL ASSERT FAILED"
TOO_SMALL = "2.00 GB of GPU memory are too little"
GPU = torch.device("cuda")
VARIABLE = "FAILING_GPU"
"""Variable of the environment: the faults of each rung as JSON."""

FaultPoint = Literal["gate", "memory", "capture", "replay", "pass", "serving"]
"""Where a fault happens: the check of kernels, the plan of memory, a capture, the first replay of a
graph, a pass that runs plainly, or the first pass of a listener."""


class _Pinned:
    """Pinned memory in use: PyTorch ends the process where it is released after such a fault."""

    def __del__(self) -> None:
        os.abort()


class _Unusable(TorchDispatchMode):
    """Lets every operation fail, as after an illegal access."""

    def __torch_dispatch__(self, *call: Any, **more: Any) -> Any:
        raise RuntimeError(ILLEGAL_ACCESS)


@dataclass
class FailingGpu:
    """A GPU of one process.

    Attributes:
        faults: kind of the fault at each point, for the rung of this process.
        rung: kernels, and whether graphs are used, as the engine chose them last.
        ends_process: whether the process ends where the memory of a fault is released.
        is_serving: whether the engine is loaded, and listeners are served.
    """

    faults: Mapping[FaultPoint, str]
    rung: list[object] = field(default_factory=list[object])
    ends_process: bool = False
    is_serving: bool = False

    def __post_init__(self) -> None:
        self.after = ExitStack()

    def meet(self, point: FaultPoint) -> None:
        """Raise the fault of a point, if it has one, and keep its after-effects."""
        match self.faults.get(point):
            case "illegal access":
                has_buffers = self.ends_process and point in ("replay", "pass")
                held = _Pinned() if has_buffers else None  # noqa: F841  # of the traceback's frame
                self.after.enter_context(_Unusable())
                self._refuse(ILLEGAL_ACCESS, "synchronize", "empty_cache", "mem_get_info")
                raise RuntimeError(f"{ILLEGAL_ACCESS}\nCompile with `TORCH_USE_CUDA_DSA`")
            case "invalidated":
                self._refuse(UNDERWAY, "empty_cache")
                raise RuntimeError(INVALIDATED)
            case "too small":
                raise VoiceAgentError(TOO_SMALL, code=ErrorCode.INVALID_PARAM)
            case None:
                pass
            case kind:
                raise RuntimeError(kind)

    def _refuse(self, message: str, *names: str) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError(message)

        for name in names:
            self.after.enter_context(patch.object(torch.cuda, name, fail))

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        self.meet("capture")

        def replay() -> None:
            self.meet("serving" if self.is_serving else "replay")
            function()

        return replay

    def find_fault(self, *_: object) -> str | None:
        try:
            self.meet("gate")
        except RuntimeError as error:
            return str(error).partition("\n")[0]
        return None


@contextmanager
def failing_gpu(gpu: FailingGpu) -> Iterator[None]:
    """Within the block, let engines on the CPU run as on this GPU."""
    choose, make, compile = load.choose_kernels, load.make_runner, cuda_graph.Stream.compile

    def choose_kernels(wanted: Any, config: Any, dtype: Any, _: object) -> tuple[Kernels, Any]:
        kernels, fault = choose(wanted, config, dtype, GPU)
        gpu.rung[:] = [kernels]
        return "plain", fault  # what runs is PyTorch's own

    def new_capture(device: torch.device, stream: torch.cuda.Stream | None) -> Compile:
        return gpu.capture

    def make_runner_of(checkpoint: Any, codec: Any, options: Any) -> Any:
        gpu.meet("memory")
        runner = make(checkpoint, codec, options)
        gpu.rung.append(runner.has_graphs)
        if not runner.has_graphs:
            make_runner._capture(runner)
        return runner

    def compile_plainly(stream: Any, function: Callable[[], None]) -> Callable[[], None]:
        if stream.is_captured:
            return compile(stream, function)
        return lambda: (gpu.meet("pass"), function())[1]

    with (
        gpu.after,
        patch.object(ladder, "find_device", lambda name: GPU),
        patch.object(device_choice, "find_fault", gpu.find_fault),
        patch.object(torch.cuda, "is_initialized", lambda: True),
        patch.object(torch.cuda, "synchronize", lambda device: None),
        patch.object(load, "choose_kernels", choose_kernels),
        patch.object(load, "make_runner", make_runner_of),
        patch.object(cuda_graph, "new_capture", new_capture),
        patch.object(cuda_graph.Stream, "compile", compile_plainly),
    ):
        yield


def rung_of_this_process() -> int:
    return int(os.environ.get(RUNG_VARIABLE, "0").partition(" ")[0])


class FailingSpec(WorkerSpec):
    __slots__ = ()

    def argv(self, endpoint: str) -> list[str]:
        _, _, _, *rest = super().argv(endpoint)
        return [sys.executable, "-m", "testbed.failing_gpu", *rest]


def _served_by(gpu: FailingGpu) -> Callable[[_Host, Engine], None]:
    serve = _Host._loop

    def loop(hosting: _Host, engine: Engine) -> None:
        gpu.is_serving = True
        serve(hosting, engine)

    return loop


if __name__ == "__main__":
    faults = json.loads(os.environ[VARIABLE])
    gpu = FailingGpu(faults[rung_of_this_process()], ends_process=True)
    with failing_gpu(gpu), patch.object(_Host, "_loop", _served_by(gpu)):
        raise SystemExit(main())
