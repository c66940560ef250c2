"""Parts of a machine that no package index has: tests that need a missing one are skipped."""

import contextlib
import importlib
import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest


class MissingPartError(RuntimeError):
    """A part of this machine is not installed; the message names the command that installs it."""


def require_program(name: str, package: str = "") -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingPartError(f"{name} is not installed: apt-get install {package or name}")
    return path


def import_portaudio() -> ModuleType:
    try:
        return importlib.import_module("sounddevice")
    except OSError as error:
        raise MissingPartError(f"{error}: apt-get install libportaudio2") from error


@contextlib.contextmanager
def skipped_if_missing() -> Iterator[None]:
    """Within the block, a test or fixture that misses a part is skipped."""
    try:
        yield
    except MissingPartError as missing:
        pytest.skip(str(missing))
