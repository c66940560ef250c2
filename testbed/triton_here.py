"""Interpret Triton kernels on a CPU, and compile them for GPUs that this machine lacks.

Triton decides at import, for the whole process, whether kernels are interpreted. So both run in
separate processes, which receive a function with its arguments and return its result.
"""

import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from voiceagent_tts.offspring import Following

if TYPE_CHECKING:
    import torch

Run = Callable[..., Any]
"""Calls a module's function with the given arguments in another process, and returns its result."""
Where = tuple[Run, "torch.device"]
"""Runs a kernel's function on the tensors of one device."""


@dataclass(frozen=True, slots=True)
class Resources:
    registers: int
    threads: int
    spilled_bytes: int
    shared_bytes: int


@contextmanager
def interpreting() -> Iterator[Run]:
    """Yield a function that calls another one in a process with interpreted kernels."""
    with separate_process(TRITON_INTERPRET="1") as run:
        run(_mend)
        yield run


@contextmanager
def compiling() -> Iterator[Callable[..., list[Resources]]]:
    """Yield `compile_for(capability, function, *arguments)`, which compiles the launched kernels.

    They are compiled for a GPU of that compute capability (80, 90) and not run; tensors are on the
    CPU and stay unchanged.
    """
    with tempfile.TemporaryDirectory() as cache, separate_process(TRITON_CACHE_DIR=cache) as run:
        yield lambda capability, function, *arguments: run(
            _launched, capability, function, *arguments
        )


@contextmanager
def separate_process(**environment: str) -> Iterator[Run]:
    """Yield a function that calls another one in a process with these environment variables."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning, _begin, (environment, os.getpid())) as pool:

        def run(function: Callable[..., Any], *arguments: Any) -> Any:
            # Sent as bytes, because tensors would be sent as shared memory.
            sent = pickle.dumps((function, arguments))
            return pickle.loads(pool.submit(_call, sent).result())

        yield run


def _mend() -> None:
    # Imported here: only a process that interprets has what it patches.
    from testbed.mended_interpreter import mend

    mend()


def _begin(environment: dict[str, str], parent_pid: int) -> None:
    Following(parent_pid, signal.SIGKILL)()
    os.environ.update(environment)


def _call(sent: bytes) -> bytes:
    function, arguments = pickle.loads(sent)
    return pickle.dumps(function(*arguments))


def variants(function: Callable[..., Any], *arguments: Any) -> set[tuple[str, str]]:
    """Return the names and keys of the kernels that a call launches: one for each binary.

    Nothing is compiled or run. Call it in a process of its own, as it replaces Triton's driver.
    """
    from triton import JITFunction

    def key_of(kernel: Any, key: str, *_: Any) -> SimpleNamespace:
        return SimpleNamespace(key=key)

    with patch.object(JITFunction, "_do_compile", key_of):
        launched = _launches(90, function, *arguments)
    return {(name, one.key) for name, one in launched}


def _launched(capability: int, function: Callable[..., Any], *arguments: Any) -> list[Resources]:
    return [_resources(kernel) for _, kernel in _launches(capability, function, *arguments)]


def _launches(
    capability: int, function: Callable[..., Any], *arguments: Any
) -> list[tuple[str, Any]]:
    from triton import JITFunction
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    compiled: list[tuple[str, Any]] = []
    launch = JITFunction.run

    def compile(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found = launch(kernel, *args, grid=grid, warmup=True, **options)
        compiled.append((kernel.__name__, found))

    nowhere = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
        get_current_device=lambda: capability,
        get_current_stream=lambda device: 0,
    )
    driver.set_active(nowhere)  # type: ignore[arg-type]
    JITFunction.run = compile  # type: ignore[method-assign]
    try:
        function(*arguments)
    finally:
        JITFunction.run = launch
    return compiled


def _resources(kernel: Any) -> Resources:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (usage,) = (line for line in told.splitlines() if "REG:" in line)
    numbers = {name: int(number) for name, number in re.findall(r"([A-Z]+):(\d+)", usage)}
    spilled = numbers["STACK"] + numbers["LOCAL"]
    threads = 32 * kernel.metadata.num_warps
    return Resources(numbers["REG"], threads, spilled, kernel.metadata.shared)
