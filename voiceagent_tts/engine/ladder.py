"""Loads an engine despite failures on its GPU, with fewer optimizations after each restart.

Where a kernel, a capture or a first step fails, the process starts itself anew, one rung lower:
fused kernels and CUDA graphs, a plain codec, plain kernels and graphs, plain kernels without
graphs, and then an end that says what failed first. It is a new process, because a fault may leave
the CUDA context and PyTorch's allocator unusable. An environment variable keeps the rung and the
first fault.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from voiceagent_tts.engine.options import Qwen3Options
from voiceagent_tts.errors import ErrorCode, VoiceAgentError
from voiceagent_tts.model.checkpoint import find_device
from voiceagent_tts.seam.engine_kind import RUNG_VARIABLE

_PLAIN_CODEC: Mapping[str, Any] = {"codec_kernels": "plain"}
_PLAIN: Mapping[str, Any] = {**_PLAIN_CODEC, "kernels": "plain"}
_RUNGS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("all requested optimizations", {}),
    ("a plain codec", _PLAIN_CODEC),
    ("plain kernels", _PLAIN),
    ("plain kernels and no CUDA graphs", {**_PLAIN, "has_graphs": False}),
)

_STDERR = 2

_Engine = TypeVar("_Engine")
_logger = logging.getLogger(__name__)


def load_lower(options: Qwen3Options, load: Callable[[Qwen3Options], _Engine]) -> _Engine:
    """Load an engine with the optimizations of this process's rung.

    Does not return where loading fails on a GPU and a lower rung is left: then the process
    restarts.

    Raises:
        VoiceAgentError: as `load` raises it, or the lowest rung has failed, too; with the fault
            that was the first.
    """
    rung, first_fault = _place()
    allowed = replace(options, **_RUNGS[rung][1])
    try:
        engine = load(allowed)
    except Exception as error:  # of a driver, a library or a kernel, each with its own types
        if not first_fault and isinstance(error, VoiceAgentError):
            raise
        fault = first_fault or f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        below = _below(rung, options)
        if below is None:
            raise VoiceAgentError(
                f"the engine cannot run on {find_device(options.device)}: {fault}",
                code=ErrorCode.ENGINE_ERROR,
            ) from error
        _logger.warning("restarting with %s: %s", _RUNGS[below][0], error, exc_info=True)
        _start_anew(f"{below} {fault}")
    if first_fault:
        _logger.warning(
            "the engine is slower, with %s, because of %s", _RUNGS[rung][0], first_fault
        )
    return engine


def _place() -> tuple[int, str]:
    """Return the rung of this process, and the first fault of an earlier one."""
    rung, _, first_fault = os.environ.get(RUNG_VARIABLE, "0").partition(" ")
    return min(int(rung), len(_RUNGS) - 1), first_fault


def _below(rung: int, options: Qwen3Options) -> int | None:
    """Return the next rung that changes something; None after the last one, and on a CPU."""
    if find_device(options.device).type == "cpu":
        return None
    present = replace(options, **_RUNGS[rung][1])
    lower = range(rung + 1, len(_RUNGS))
    return next((one for one in lower if replace(options, **_RUNGS[one][1]) != present), None)


def _start_anew(place: str) -> NoReturn:
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            # The GPU's memory is released when the last descriptor of the driver is closed.
            os.set_inheritable(int(name), int(name) <= _STDERR)
    sys.stdout.flush()
    sys.stderr.flush()
    argv = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, argv, {**os.environ, RUNG_VARIABLE: place})
