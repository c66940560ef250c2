"""A process of its own that loads something, and then answers one request after the other."""

import importlib
import os
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Self

import torch

from voiceagent_tts.offspring import Following

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the fields of a request and returns those of the answer."""

_answer: Answer | None = None


class Child:
    """The process; a context manager that ends it.

    Args:
        load: function that it calls first, as `MODULE.FUNCTION`; returns an `Answer`.
        arguments: arguments of the function.
        threads: threads of PyTorch.
    """

    def __init__(self, load: str, *arguments: str, threads: int) -> None:
        given = os.getpid(), threads, load, arguments
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _load, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            BrokenProcessPool: the process has ended; its standard error says why.
        """
        return self._pool.submit(_ask, request).result()


def _load(parent_pid: int, threads: int, load: str, arguments: tuple[str, ...]) -> None:
    global _answer
    Following(parent_pid)()
    os.dup2(2, 1)  # standard output is for the figures of the program
    torch.set_num_threads(threads)  # the main module has loaded OpenMP: its variable is read
    module, _, function = load.rpartition(".")
    _answer = getattr(importlib.import_module(module), function)(*arguments)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    assert _answer is not None
    answer = _answer(request)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**answer, "peak_mb": peak_kb * 1024 / 1e6}
