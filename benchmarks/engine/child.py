"""A process of its own that loads something, and then answers one request after the other."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from testbed.triton_here import separate_process

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the fields of a request and returns those of the answer."""
Ask = Callable[..., dict[str, Any]]
"""Sends a request, and returns the answer; `BrokenProcessPool` if the process has ended."""

_answer: Answer | None = None


@contextmanager
def child(load: str, *arguments: str, threads: int) -> Iterator[Ask]:
    """Yield what asks a process, which ends with the block.

    Args:
        load: function that it calls first, as `MODULE.FUNCTION`; returns an `Answer`.
        arguments: arguments of the function.
        threads: threads of PyTorch.
    """
    with separate_process() as run:
        run(_load, threads, load, arguments)
        yield lambda **request: run(_ask, request)


def _load(threads: int, load: str, arguments: tuple[str, ...]) -> None:
    global _answer
    os.dup2(2, 1)  # standard output is for the figures of the program
    torch.set_num_threads(threads)  # the main module has loaded OpenMP: its variable is read
    module, _, function = load.rpartition(".")
    _answer = getattr(importlib.import_module(module), function)(*arguments)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    assert _answer is not None
    return _answer(request)
